"""Small rules of the listo blueprint: use cases, attempts foretold, arrays by provider, spellings of settings."""

from pathlib import Path
from typing import Any

import pytest

from carillon.compose import from_settings
from carillon.config.reading import load, masked, secrets
from carillon.domain.errors import ConfigurationError
from carillon.domain.outcomes import Refused, Sent
from carillon.domain.synchronous import is_use_case, timed_out_text
from carillon.live.inbox import InboxProvider
from carillon.upkeep.api.notifications_wire import providers_of
from tests.support.dispatches import dispatch

PHRASES = ["driver assign", "driver assigned", "otp", "2fa", "two factor"]
CREDENTIALS = {
    "TWILIO_ACCOUNT_SID": "AC1",
    "TWILIO_AUTH_TOKEN": "token-of-twilio",
    "TWILIO_FROM": "+15005550006",
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_SECRET_ACCESS_KEY": "secret-of-aws",
    "SENDGRID_API_KEY": "SG.key",
    "EMAIL_FROM": "bells@example.org",
    "ACS_ENDPOINT": "https://r.communication.azure.com",
    "ACS_ACCESS_KEY": "a2V5",
    "FCM_SERVER_KEY": "AAAA:key",
}


@pytest.mark.req("S2-18")
@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("driver_assigned", True),
        ("DRIVER.Assign", True),
        ("your-otp-code", True),
        ("two__factor", True),
        ("2fa", True),
        ("hotpot_sale", False),
        ("driver_was_assigned", False),
        ("factor_two", False),
        ("", False),
    ],
)
def test_a_use_case_is_whole_words_in_a_row(key: str, *, found: bool) -> None:
    assert is_use_case(key, PHRASES) is found
    assert not is_use_case(key, [])


@pytest.mark.req("S2-08")
def test_the_sentence_is_the_documents() -> None:
    assert timed_out_text(2.0) == "Synchronous delivery timed out after 2s. Notification NOT queued."


@pytest.mark.req("S2-67", "S2-68")
@pytest.mark.parametrize(
    ("tried", "names", "ids"),
    [
        ([], [], []),
        ([("Twilio", "SM1")], ["Twilio"], ["SM1"]),
        ([("Twilio", None), ("Twilio", None), ("AWS_SNS", "sns-1")], ["Twilio", "AWS_SNS"], [None, "sns-1"]),
        (
            [("Twilio", "twilio-msg-456"), ("AWS_SNS", "sns-msg-789")],
            ["Twilio", "AWS_SNS"],
            ["twilio-msg-456", "sns-msg-789"],
        ),
        ([("AWS_SNS", "sns-1")], ["Twilio", "AWS_SNS"], [None, "sns-1"]),
        ([("Twilio", "SM1"), ("Twilio", None), ("Twilio", "SM2")], ["Twilio"], ["SM2"]),
        ([("gone", "g1"), ("Twilio", "SM1")], ["Twilio", "gone"], ["SM1", "g1"]),
    ],
)
def test_the_place_says_which_provider(tried: list[Any], names: list[str], ids: list[str | None]) -> None:
    attempts = [{"route_id": "r", "provider": name, "provider_message_id": given} for name, given in tried]
    routes = [{"route_id": "r", "channel": "sms"}]
    assert providers_of(routes, attempts, {"sms": ["Twilio", "AWS_SNS"]}) == (names, ids)


async def test_the_inbox_takes_what_was_rendered() -> None:
    inbox = InboxProvider(None)
    taken = await inbox.send(dispatch(channel="inApp"))
    assert isinstance(taken, Sent)
    assert isinstance(await inbox.send(dispatch(channel="inApp", message=None)), Refused)
    await inbox.aclose()


@pytest.mark.req("S2-50", "S2-51", "S2-52", "S2-53")
def test_the_order_of_providers_is_the_documents() -> None:
    assert from_settings.chains(load("listo", environ=CREDENTIALS)) == {
        "sms": ("Twilio", "AWS_SNS"),
        "email": ("SendGrid", "AZURE_ACS"),
        "push": ("FCM",),
        "inApp": ("inbox",),
    }


@pytest.mark.parametrize("missing", CREDENTIALS)
def test_without_a_credential_the_start_is_refused_unless_the_sandbox_may_stand_in(missing: str) -> None:
    environ = {name: value for name, value in CREDENTIALS.items() if name != missing}
    with pytest.raises(ConfigurationError, match=rf"\({missing}\).*CARILLON_ALLOW_SANDBOX"):
        from_settings.chains(load("listo", environ=environ))
    chains = from_settings.chains(load("listo", environ={**environ, "CARILLON_ALLOW_SANDBOX": "1"}))
    assert "sandbox" in {name for chain in chains.values() for name in chain}


def test_every_credential_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_settings.chains(load("listo", environ={}))
    assert [name for name in CREDENTIALS if f"({name})" not in str(refused.value)] == []


def test_either_of_two_credentials_is_enough() -> None:
    environ = {name: value for name, value in CREDENTIALS.items() if name != "FCM_SERVER_KEY"}
    assert from_settings.chains(load("listo", environ={**environ, "GOOGLE_APPLICATION_CREDENTIALS": "key.json"}))[
        "push"
    ] == ("FCM",)


@pytest.mark.req("S2-58")
@pytest.mark.parametrize("spelling", ["twilio", "Twilio", "TWILIO"])
def test_a_breakers_table_is_found_however_its_provider_is_written(tmp_path: Path, spelling: str) -> None:
    file = tmp_path / "listo.toml"
    file.write_text(f'extends = "listo"\n[policy.breaker.{spelling}]\nfailure_threshold = 7\n')
    policies = from_settings.breaker_policies(load(None, file, CREDENTIALS))
    assert (policies["Twilio"].failure_threshold, policies["Twilio"].open_seconds) == (7, 60)
    assert (policies["FCM"].failure_threshold, policies["FCM"].open_seconds) == (10, 120)


def test_names_that_only_look_secret_are_shown() -> None:
    settings = load("listo", environ={**CREDENTIALS, "SENDGRID_WEBHOOK_PUBLIC_KEY": "public"})
    shown = masked(settings)["providers"]
    assert (shown["Twilio"]["callback_key"], shown["SendGrid"]["webhook_public_key"]) == ("message", "public")
    assert shown["Twilio"]["auth_token"] == "********"
    assert {"token-of-twilio", "secret-of-aws"} <= secrets(settings)
    assert not {"message", "public"} & secrets(settings)


@pytest.mark.req("S2-42")
def test_the_default_policy_cannot_be_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "listo.toml"
    file.write_text('extends = "listo"\n[policy.retry."*/*"]\nenabled = false\n')
    with pytest.raises(ConfigurationError, match="the default policy is missing"):
        load(None, file, CREDENTIALS)
