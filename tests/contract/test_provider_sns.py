"""The SNS provider over the wire: against moto, against a stub that checks signatures, and beside boto3."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import boto3
import pytest

from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Probed
from carillon.providers import channels, kinds, load
from carillon.providers.http import HttpClient
from carillon.providers.sns import Sns
from tests.support.dispatches import dispatch, tools
from tests.support.ports import free_port
from tests.support.sns_stub import ACCESS_KEY, RECIPIENT, REGION, SECRET_KEY, Moto, SnsStub, error
from tests.support.vendor import Reply

NOW = 1_700_000_100.9
NOT_A_NUMBER = "Invalid parameter: PhoneNumber Reason: +1 is not valid to publish to"


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[SnsStub]:
    with SnsStub(tmp_path / "sns.jsonl") as stub:
        yield stub


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with Moto() as moto:
        yield moto


def sns(http: HttpClient, url: str | None, *, wall: float = NOW, **options: Any) -> Sns:
    given = {"endpoint_url": url, "region": REGION, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    provider = load("AWS_SNS", "sns", given | options, tools(http, wall=wall))
    assert isinstance(provider, Sns)
    return provider


def text(address: str | None = RECIPIENT, **fields: Any) -> Any:
    return dispatch(address=address, channel="sms", route_id="sms:user-7", **fields)


def theirs(url: str, **options: Any) -> Any:
    named = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": REGION} | options
    return boto3.client("sns", endpoint_url=url, **named)


def attribute(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


@pytest.mark.req("S2-57")
async def test_a_message_arrives_signed(stub: SnsStub, http: HttpClient) -> None:
    assert await sns(http, stub.url, sender_id="Carillon").send(text()) == Sent("00000000-0000-0000-0000-000000000000")
    [entry] = stub.entries
    assert (entry["method"], entry["path"], entry["status"]) == ("POST", "/", 200)
    assert entry["headers"]["x-amz-date"] == "20231114T221500Z"
    assert dict(parse_qsl(entry["body"])) == {
        "Action": "Publish",
        "Version": "2010-03-31",
        "PhoneNumber": RECIPIENT,
        "Message": "Your table is ready.",
        "MessageAttributes.entry.1.Name": "AWS.SNS.SMS.SMSType",
        "MessageAttributes.entry.1.Value.DataType": "String",
        "MessageAttributes.entry.1.Value.StringValue": "Transactional",
        "MessageAttributes.entry.2.Name": "AWS.SNS.SMS.SenderID",
        "MessageAttributes.entry.2.Value.DataType": "String",
        "MessageAttributes.entry.2.Value.StringValue": "Carillon",
    }
    assert channels("sns") == frozenset({"sms"})


@pytest.mark.req("S2-57")
async def test_moto_takes_it(moto: Moto, http: HttpClient) -> None:
    provider = sns(http, moto.url, sender_id="Carillon", sms_type="Promotional")
    outcome = await provider.send(text(message=Message(text="für dich & alle\n\U0001f514")))
    assert isinstance(outcome, Sent)
    [taken] = moto.texts()
    assert taken == {
        "message_id": outcome.message_id,
        "phone_number": RECIPIENT,
        "message": "für dich & alle\n\U0001f514",
    }
    assert await provider.probe() is None


@pytest.mark.req("S2-57")
@pytest.mark.parametrize("body", ["Table 7", "ü €5 & more = 100% + x\r\ny", "\U0001f514 " + "x" * 1600, "a%20b~*.-_/ "])
@pytest.mark.parametrize("sender_id", [None, "Carillon"])
async def test_the_bytes_and_the_signature_are_boto3s(
    stub: SnsStub, http: HttpClient, body: str, sender_id: str | None
) -> None:
    attributes = {"AWS.SNS.SMS.SMSType": attribute("Transactional")}
    if sender_id:
        attributes["AWS.SNS.SMS.SenderID"] = attribute(sender_id)
    theirs(stub.url).publish(PhoneNumber=RECIPIENT, Message=body, MessageAttributes=attributes)
    stamp = datetime.strptime(stub.entries[0]["headers"]["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    provider = sns(http, stub.url, wall=stamp.timestamp() + 0.7, sender_id=sender_id)
    await provider.send(text(message=Message(text=body)))
    other, ours = stub.entries
    for part in ("method", "path", "body", "status"):
        assert ours[part] == other[part]
    for name in ("authorization", "x-amz-date", "content-type", "content-length", "host"):
        assert ours["headers"][name] == other["headers"][name]


async def test_the_stub_is_no_pushover(stub: SnsStub, http: HttpClient) -> None:
    """The control: other keys, other bytes and other names are refused, to boto3 as to us."""
    assert isinstance(await sns(http, stub.url).send(text()), Sent)
    for name, value in (("secret_access_key", "other"), ("access_key_id", "AKIAOTHER")):
        outcome = await sns(http, stub.url, **{name: value}).send(text())  # type: ignore[arg-type] # an option
        assert isinstance(outcome, Refused)
        assert outcome.classification == "credentials"
    client = theirs(stub.url, aws_secret_access_key="other")
    with pytest.raises(client.exceptions.ClientError, match="SignatureDoesNotMatch"):
        client.publish(PhoneNumber=RECIPIENT, Message="x")
    stub.opted_out.add(RECIPIENT)
    assert await sns(http, stub.url).send(text()) == Refused(
        "HTTP 400 OptedOut This phone number has opted out", "opted_out", recipient_gone=True
    )
    assert isinstance(await sns(http, stub.url).send(text("+12")), Refused)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (error("InvalidParameter", NOT_A_NUMBER), ("refused", "invalid_number", True)),
        (error("InvalidParameter", "Phone number does not meet the E164 format"), ("refused", "invalid_number", True)),
        (error("InvalidParameter", "Invalid parameter: Message too long"), ("refused", "invalid_parameter", False)),
        (error("ParameterValueInvalid"), ("refused", "invalid_parameter", False)),
        (error("OptedOut"), ("refused", "opted_out", True)),
        (error("AuthorizationError"), ("refused", "credentials", False)),
        (error("SignatureDoesNotMatch"), ("refused", "credentials", False)),
        (error("InvalidClientTokenId"), ("refused", "credentials", False)),
        (error("InvalidSecurity"), ("refused", "credentials", False)),
        (error("ExpiredTokenException"), ("refused", "credentials", False)),
        (error("UserError"), ("refused", "http_400", False)),
        (error("InternalError"), ("unavailable", "unavailable", None)),
        (error("InternalFailure"), ("unavailable", "unavailable", None)),
        (error("ServiceUnavailable", Retry_After="9"), ("unavailable", "unavailable", 9.0)),
        (error("Throttling", "Rate exceeded"), ("throttled", None)),
        (error("ThrottlingException"), ("throttled", None)),
        (error("Throttled"), ("throttled", None)),
        (error("ThrottledException", Retry_After="3"), ("throttled", 3.0)),
        (Reply(429, body=b""), ("throttled", None)),
        (Reply(503, body="<html>later</html>"), ("unavailable", "http_503", None)),
        (Reply(408, body=b""), ("unknown", "http_408")),
        (Reply(403, body=b"\xff<Code></Code><Code"), ("refused", "http_403", False)),
    ],
)
async def test_what_answers_mean(stub: SnsStub, http: HttpClient, reply: Reply, outcome: tuple[Any, ...]) -> None:
    stub.answer(reply)
    found: Outcome = await sns(http, stub.url).send(text())
    match found:
        case Refused():
            assert ("refused", found.classification, found.recipient_gone) == outcome
        case Unavailable():
            assert ("unavailable", found.classification, found.retry_after) == outcome
        case Throttled():
            assert ("throttled", found.retry_after) == outcome
        case Unknown():
            assert ("unknown", found.classification) == outcome
        case _:
            pytest.fail(f"{found}")
    assert found.error.startswith(f"HTTP {reply.status}")
    assert len(stub.entries) == 1


async def test_words_are_read_and_xml_is_not_obeyed(stub: SnsStub, http: HttpClient) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]>'
    stub.answer(
        error("InternalError", "5 < 7 & 'so'"),
        Reply(400, body=f"{bomb}<Error><Code>InvalidParameter</Code><Message>&b;&a;</Message></Error>"),
        Reply(200, body=f"{bomb}<MessageId>&a;</MessageId>"),
        Reply(200, body="<" * 60_000),
        Reply(200, body=b""),
    )
    provider = sns(http, stub.url)
    assert await provider.send(text()) == Unavailable("HTTP 500 InternalError 5 < 7 & 'so'")
    assert await provider.send(text()) == Refused("HTTP 400 InvalidParameter &b;&a;", "invalid_parameter")
    assert await provider.send(text()) == Sent("&a;")
    assert await provider.send(text()) == Sent()
    assert await provider.send(text()) == Sent()


async def test_operators_overrule_the_table(stub: SnsStub, http: HttpClient) -> None:
    answers = {
        "InvalidParameter:PhoneNumber": {"outcome": "unavailable", "classification": "ours"},
        "ThrottlingException": {"outcome": "refused", "classification": "ours"},
    }
    stub.answer(error("InvalidParameter", NOT_A_NUMBER), error("ThrottlingException"), error("Throttling"))
    provider = sns(http, stub.url, answers=answers)
    assert isinstance(await provider.send(text()), Unavailable)
    assert isinstance(await provider.send(text()), Refused)
    assert isinstance(await provider.send(text()), Throttled)


async def test_silence_after_sending_is_unknown_and_before_it_is_not(stub: SnsStub, http: HttpClient) -> None:
    stub.answer(Reply(hang=True), Reply(reset=True))
    provider = sns(http, stub.url)
    assert await provider.send(text(timeout_seconds=2.0)) == Unknown("no answer within 2 s", "timeout")
    assert isinstance(await provider.send(text()), Unknown)
    assert isinstance(await sns(http, f"http://127.0.0.1:{free_port()}").send(text()), Unavailable)


@pytest.mark.parametrize("address", [None, "", "ada@example.com", "4155550100", "+0123", "+1415555010\n", "+1" * 20])
async def test_what_is_no_number_is_never_sent(stub: SnsStub, http: HttpClient, address: str | None) -> None:
    outcome = await sns(http, stub.url).send(text(address))
    assert isinstance(outcome, Refused)
    assert outcome.classification == "bad_address"
    assert isinstance(await sns(http, stub.url).send(text(message=None)), Refused)
    assert not stub.entries


@pytest.mark.req("S2-61")
async def test_a_probe_is_signed_and_sends_nobody_anything(stub: SnsStub, http: HttpClient) -> None:
    provider = sns(http, stub.url)
    assert isinstance(provider, Probed)
    assert await provider.probe() is None
    wrong = await sns(http, stub.url, secret_access_key="other").probe()
    assert wrong == "HTTP 403 SignatureDoesNotMatch The request signature we calculated does not match"
    assert "connect" in str(await sns(http, f"http://127.0.0.1:{free_port()}").probe())
    assert {entry["body"] for entry in stub.entries} == {"Action=GetSMSAttributes&Version=2010-03-31"}
    assert not stub.messages


@pytest.mark.parametrize(("region", "host"), [("us-east-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")])
def test_every_region_has_its_endpoint(http: HttpClient, region: str, host: str) -> None:
    provider = sns(http, None, region=region)
    assert f"https://sns.{region}.{host}/" in str(vars(provider))
    assert theirs(None, region_name=region).meta.endpoint_url == f"https://sns.{region}.{host}"  # type: ignore[arg-type]


async def test_an_error_never_quotes_the_secret(stub: SnsStub, http: HttpClient) -> None:
    provider = sns(http, stub.url)
    stub.answer(error("InternalError", f"{SECRET_KEY} is wrong"), Reply(500, body=SECRET_KEY))
    for _ in range(2):
        assert SECRET_KEY not in str(await provider.send(text()))
    assert SECRET_KEY not in f"{provider!r} {vars(provider)!r}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"region": ""}, "providers.AWS_SNS.region: "),
        ({"secret_access_key": ""}, "providers.AWS_SNS.secret_access_key: "),
        ({"endpoint_url": "sns.example"}, "providers.AWS_SNS.endpoint_url: "),
        ({"sms_type": "Free"}, "providers.AWS_SNS.sms_type: "),
        ({"sender_id": "much too long a name"}, "providers.AWS_SNS.sender_id: "),
        ({"answers": {"44x": {"outcome": "refused", "classification": "x"}}}, "providers.AWS_SNS: answers: "),
    ],
)
def test_wrong_settings_are_named(http: HttpClient, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        sns(http, "http://127.0.0.1:1", **options)
    assert str(wrong.value).startswith(message)


def test_a_missing_extra_is_named(http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.delitem(sys.modules, "carillon.providers.sns")
    with pytest.raises(ConfigurationError) as missing:
        load("AWS_SNS", "sns", {}, tools(http))
    assert str(missing.value).endswith("pip install 'carillon[sns]'")
    assert "sns" in kinds()
