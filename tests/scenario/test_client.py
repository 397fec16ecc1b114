"""The Python client against a running Carillon, and against networks that lose answers."""

import asyncio
import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carillon.client import (
    Accepted,
    ApiRequest,
    AsyncClient,
    Client,
    Item,
    Notification,
    Patience,
    Rejected,
    Route,
    Unreachable,
    wire,
)
from tests.support.client import Client as WebClient
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.proxy import FaultProxy
from tests.support.vendor import Reply, Vendor
from tests.support.waiting import until, wait_until

WELCOME: dict[str, Any] = {
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/"},
}
PATIENT = Patience(timeout_seconds=20.0, tries=200, first_wait_seconds=0.05, longest_wait_seconds=0.2)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("client")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def address(program: Program) -> str:
    return str(program.wait_ready()["addresses"][0])


def test_send_wait_get_search_cancel_explain(address: str) -> None:
    user = uuid.uuid4().hex
    with Client(address) as client:
        accepted = client.send("welcome", user_id=user, **WELCOME)
        assert (accepted.status, accepted.replayed) == ("queued", False)
        finished = client.wait(accepted.notification_id)
        assert finished.status == "delivered"
        seen = client.get(accepted.notification_id, attempts=True)
        assert seen is not None
        assert [attempt.outcome for attempt in seen.routes[0].attempts] == ["sent"]
        assert [one.id for one in client.search(user_id=user, status="delivered").items] == [accepted.notification_id]
        assert client.cancel(accepted.notification_id) == 0
        assert client.get("nobody") is None
        explained = client.explain("welcome", **WELCOME)
        assert explained.outcome == "queued"
        assert "template" in {step.step for step in explained.steps}


async def test_the_same_for_asyncio(address: str) -> None:
    user = uuid.uuid4().hex
    async with AsyncClient(address) as client:
        sent = await asyncio.gather(*(client.send("welcome", user_id=user, **WELCOME) for _ in range(20)))
        assert len({one.notification_id for one in sent}) == 20
        assert (await client.wait(sent[0].notification_id)).status == "delivered"
        found = await client.get(sent[1].notification_id)
        assert found is not None
        assert (await client.search(user_id=user)).total_count == 20
        assert await client.cancel(sent[0].notification_id) == 0
        assert (await client.explain("welcome", **WELCOME)).outcome == "queued"


CHAIN: dict[str, Any] = {"channels": ["push", "email"], "until": "read", "after": "10m", "data": WELCOME["data"]}


def until_pushed(client: Client, name: str) -> None:
    def pushed() -> bool:
        found = client.get(name)
        return found is not None and any(one.channel == "push" and one.status == "delivered" for one in found.routes)

    wait_until(pushed, timeout=30, what="the first of the chain is sent")


@pytest.mark.req("P-320", "P-323")
@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_chain_ends_with_a_report_of_either_client(address: str, kind: str) -> None:
    user = f"chain-{kind}"
    with Client(address) as client:
        contacts = {"contacts": {"email": "ada@example.org", "pushToken": "device"}}
        WebClient(address).call("PUT", f"/api/v1/preferences/user/{user}", contacts)

        async def as_the_other_client() -> str:
            async with AsyncClient(address) as other:
                sent = await other.send("welcome", user_id=user, **CHAIN)
                await asyncio.to_thread(until_pushed, client, sent.notification_id)
                assert await other.report(sent.notification_id, "read", channel="push") == "noted"
                assert await other.report(sent.notification_id, "read", channel="push") == "repeated"
                return sent.notification_id

        if kind == "asyncio":
            name = asyncio.run(as_the_other_client())
        else:
            name = client.send("welcome", user_id=user, **CHAIN).notification_id
            until_pushed(client, name)
            assert client.report(name, "read", channel="push") == "noted"
            assert client.report(name, "read", channel="push") == "repeated"
        found = client.get(name)
        assert found is not None
        assert {one.channel: one.status for one in found.routes} == {"push": "opened", "email": "skipped"}
        with pytest.raises(Rejected):
            client.report("nobody", "read", channel="push")


def test_a_key_is_heard_once(address: str) -> None:
    key = uuid.uuid4().hex
    with Client(address) as client:
        first = client.send("welcome", idempotency_key=key, **WELCOME)
        again = client.send("welcome", idempotency_key=key, **WELCOME)
        assert (again.notification_id, again.replayed) == (first.notification_id, True)


def test_many_in_batches_with_one_answer_each(address: str) -> None:
    good = [Item(template_key="welcome", user_id=f"many-{n}", **WELCOME) for n in range(501)]
    with Client(address) as client:
        answers = client.send_many([*good, Item(template_key="there.is.no.such", **WELCOME)])
    assert [answer.index for answer in answers] == list(range(502))
    assert {answer.status for answer in answers[:501]} == {"queued"}
    last = answers[-1]
    assert last.error is not None
    assert (last.status, last.error.code) == ("rejected", "TEMPLATE_NOT_FOUND")


@pytest.mark.req("P-1323")
def test_a_refusal_says_why_and_is_not_repeated(address: str) -> None:
    with Client(address, patience=PATIENT) as client:
        with pytest.raises(Rejected, match="TEMPLATE_NOT_FOUND") as refused:
            client.send("there.is.no.such", **WELCOME)
        assert (refused.value.status, refused.value.code) == (404, "TEMPLATE_NOT_FOUND")
        assert refused.value.problem["status"] == 404


def test_nobody_there() -> None:
    quick = Patience(tries=2, first_wait_seconds=0.01)
    with Client(f"http://127.0.0.1:{free_port()}", patience=quick) as client, pytest.raises(Unreachable) as error:
        client.send("welcome", idempotency_key="mine", **WELCOME)
    assert error.value.idempotency_key == "mine"


@pytest.mark.parametrize("bad", ["ftp://example.org", "example.org", "", "http://a..b"])
def test_an_address_that_is_none(bad: str) -> None:
    with pytest.raises(ValueError, match="http"):
        Client(bad)


async def lose_the_answer(proxy: FaultProxy, cut_after: int) -> None:
    """Cut the next answer short, then let everything pass again."""
    seen = proxy.cuts
    proxy.cut(after=cut_after)
    await until(lambda: _is(proxy.cuts > seen), timeout=30, what="an answer that was cut")
    proxy.heal()


async def _is(condition: bool) -> bool:  # noqa: FBT001 - a condition
    return condition


async def test_answers_that_are_lost_are_asked_for_again(address: str) -> None:
    """The request arrived, its answer did not: asked again under the same key, it is one notification."""
    host, port = address.removeprefix("http://").split(":")
    user = uuid.uuid4().hex
    async with FaultProxy(host, int(port)) as proxy, AsyncClient(f"http://{proxy.address}", patience=PATIENT) as client:
        await client.send("welcome", user_id=user, **WELCOME)
        for cut_after in (0, 10, 100):
            losing = asyncio.create_task(lose_the_answer(proxy, cut_after))
            await asyncio.sleep(0)
            await client.send("welcome", user_id=user, **WELCOME)
            await losing
    async with AsyncClient(address) as direct:
        assert (await direct.search(user_id=user)).total_count == 4


async def test_without_the_key_lost_answers_would_be_sent_twice(address: str) -> None:
    """The negative control of the test above: what makes repeating safe is the key."""
    host, port = address.removeprefix("http://").split(":")
    user = uuid.uuid4().hex
    asked = _without_key(Item(template_key="welcome", user_id=user, **WELCOME))
    async with FaultProxy(host, int(port)) as proxy:
        with Client(f"http://{proxy.address}", patience=PATIENT) as client:
            losing = asyncio.create_task(lose_the_answer(proxy, 10))
            await asyncio.sleep(0)
            await asyncio.to_thread(client.run, asked)
            await losing
    async with AsyncClient(address) as direct:
        assert ((await direct.search(user_id=user)).total_count or 0) >= 2


def _without_key(item: Item) -> ApiRequest[Accepted]:
    return msgspec.structs.replace(wire.send(item, "unused"), headers={}, key=None)


async def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    """503 with Retry-After, then the answer."""
    with Vendor(tmp_path / "busy.jsonl") as vendor:
        vendor.answer(Reply(503, headers={"Retry-After": "0"}), Reply(429))
        vendor.default = Reply(202, body={"notificationId": "n-1", "status": "queued", "queueName": "standard"})
        async with AsyncClient(vendor.url, patience=PATIENT) as client:
            assert (await client.send("welcome", **WELCOME)).notification_id == "n-1"
        keys = {entry["headers"]["idempotency-key"] for entry in vendor.entries}
        assert (len(vendor.entries), len(keys)) == (3, 1)


@pytest.mark.req("P-1184")
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(503, body={"error": {"code": "UNAVAILABLE", "message": "too much is waiting"}}), "too much is waiting"),
        (Reply(429, body={"error": {"code": "TOO_MANY_REQUESTS", "message": "slow down"}}), "slow down"),
        (Reply(502, body="<h1>Bad Gateway</h1>"), "answers 502"),
    ],
)
def test_a_server_that_stays_busy_has_refused_nothing(tmp_path: Path, reply: Reply, said: str) -> None:
    with Vendor(tmp_path / "busy.jsonl") as vendor:
        vendor.default = reply
        quick = Patience(tries=2, first_wait_seconds=0.01)
        with Client(vendor.url, patience=quick) as client, pytest.raises(Unreachable, match=said) as error:
            client.send("welcome", idempotency_key="mine", **WELCOME)
        assert error.value.idempotency_key == "mine"
        vendor.default = Reply(502, body={"error": {"code": "DELIVERY_FAILED", "message": "the number is wrong"}})
        with Client(vendor.url, patience=quick) as client, pytest.raises(Rejected, match="the number is wrong"):
            client.send("welcome", synchronous=True, **WELCOME)


CALLS: dict[str, Callable[[Client], object]] = {
    "prefer": lambda client: client.prefer("ada", channels={"email": False}),
    "preference_link": lambda client: client.preference_link("ada"),
    "preferences": lambda client: client.preferences("ada"),
    "get": lambda client: client.get("n-1"),
    "cancel": lambda client: client.cancel("n-1"),
    "lift_suppression": lambda client: client.lift_suppression("email", "ada@example.org"),
}


@pytest.mark.req("P-1221")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "reply",
    [
        Reply(301, headers={"Location": "https://example.org/"}, body=b""),
        Reply(200, body="<h1>Sign in</h1>"),
        Reply(200, body=b'{"said": "\xe9"}'),
        Reply(200, body=b"[]"),
        Reply(404, body="<h1>Not Found</h1>"),
        Reply(409, body="<h1>Conflict</h1>"),
    ],
    ids=["redirection", "page", "latin", "list", "404", "409"],
)
def test_what_somebody_else_answers_is_no_answer_of_carillon(tmp_path: Path, reply: Reply, name: str) -> None:
    with Vendor(tmp_path / "else.jsonl") as vendor, Client(vendor.url) as client:
        vendor.default = reply
        with pytest.raises((Unreachable, Rejected)) as told:
            CALLS[name](client)
    assert not isinstance(told.value, Rejected) or told.value.code == "UNEXPECTED"


@pytest.mark.req("P-1222")
def test_what_is_not_repeated_is_not_lost_on_a_connection_that_the_server_has_closed(tmp_path: Path) -> None:
    environ = {"CARILLON_HTTP__PORT": str(free_port())}
    with Client(f"http://127.0.0.1:{environ['CARILLON_HTTP__PORT']}") as client:
        with Program("serve", env=environ, cwd=tmp_path) as first:
            first.wait_ready(60)
            assert client.search().total_count == 0
        with Program("serve", env=environ, cwd=tmp_path) as second:
            second.wait_ready(60)
            assert client.redrive_skipped("the server was started again").matched == 0


@pytest.mark.req("P-1226")
@pytest.mark.parametrize("token", ["secret\n", "two words", "ключ"])
def test_a_token_that_is_none_is_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="token: it must be one line") as refused:
        Client("http://127.0.0.1:8080", token=token)
    assert token.strip() not in str(refused.value)


def test_the_types_know_only_what_is_documented(program: Program, address: str) -> None:
    with urllib.request.urlopen(f"{address}/openapi.json", timeout=20) as answer:  # noqa: S310 - our own address
        schemas = json.load(answer)["components"]["schemas"]
    for kind, schema in ((Notification, "NotificationView"), (Route, "RouteView")):
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert fields <= set(schemas[schema]["properties"]), schema
    assert program.wait_ready()
