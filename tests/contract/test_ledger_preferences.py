"""Preferences in the ledger: changes meet what is there, not what somebody had read."""

import asyncio

import pytest

from carillon.domain.people import PreferenceChange, QuietHours
from carillon.ledger.opening import Ledger
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

QUIET = QuietHours(enabled=True, start_time="22:00", end_time="07:00", timezone="Europe/Berlin")


@pytest.fixture(autouse=True)
async def empty(engine: Engine, ledger: Ledger) -> None:
    assert ledger is not None
    await engine.execute("DELETE FROM preferences")


@pytest.mark.req("S2-115")
async def test_what_was_wished_can_be_read_again(ledger: Ledger) -> None:
    assert await ledger.preferences([(None, "ada")]) == [None]
    held = await ledger.change_preferences(
        None,
        "ada",
        PreferenceChange(
            preferred_locale="es-MX",
            channels={"sms": False, "email": True},
            contacts={"email": "ada@example.org", "phone": None},
            quiet_hours=QUIET,
        ),
    )
    assert (held.preferred_locale, held.channels) == ("es-MX", {"sms": False, "email": True})
    assert (held.contacts, held.quiet_hours) == ({"email": "ada@example.org"}, QUIET)
    assert type(held.updated_at) is int
    assert await ledger.preferences([(None, "ada")]) == [held]


async def test_a_change_leaves_the_rest_alone(ledger: Ledger) -> None:
    await ledger.change_preferences(
        None, "ada", PreferenceChange(preferred_locale="de", contacts={"email": "a@example.org", "phone": "+491"})
    )
    held = await ledger.change_preferences(
        None, "ada", PreferenceChange(channels={"push": False}, contacts={"phone": None, "pushToken": "t"})
    )
    assert held.preferred_locale == "de"
    assert held.contacts == {"email": "a@example.org", "pushToken": "t"}
    held = await ledger.change_preferences(None, "ada", PreferenceChange(channels={"sms": False}, quiet_hours=QUIET))
    assert held.channels == {"push": False, "sms": False}
    held = await ledger.change_preferences(None, "ada", PreferenceChange(preferred_locale=None, quiet_hours=None))
    assert (held.preferred_locale, held.quiet_hours) == (None, None)


async def test_a_replacement_leaves_nothing(ledger: Ledger) -> None:
    await ledger.change_preferences(
        None, "ada", PreferenceChange(preferred_locale="de", channels={"sms": False}, quiet_hours=QUIET)
    )
    held = await ledger.change_preferences(
        None, "ada", PreferenceChange(contacts={"email": "a@example.org"}, replace=True)
    )
    assert (held.preferred_locale, held.channels, held.quiet_hours) == (None, {}, None)
    assert held.contacts == {"email": "a@example.org"}


async def test_a_user_of_one_tenant_is_nobody_in_another(ledger: Ledger) -> None:
    await ledger.change_preferences("acme", "ada", PreferenceChange(preferred_locale="de"))
    await ledger.change_preferences(None, "bob", PreferenceChange(preferred_locale="fr"))
    asked = [("acme", "ada"), (None, "ada"), ("other", "ada"), (None, "bob"), ("acme", "ada")]
    found = await ledger.preferences(asked)
    assert [None if one is None else one.preferred_locale for one in found] == ["de", None, None, "fr", "de"]
    assert await ledger.preferences([]) == []


@pytest.mark.req("S2-92")
async def test_a_channel_is_switched_off(ledger: Ledger) -> None:
    await ledger.disable("acme", "ada", "email")
    await ledger.change_preferences("acme", "ada", PreferenceChange(preferred_locale="de"))
    await ledger.disable("acme", "ada", "email")
    (held,) = await ledger.preferences([("acme", "ada")])
    assert held is not None
    assert (held.channels, held.preferred_locale) == ({"email": False}, "de")


async def test_changes_at_once_are_all_kept(ledger: Ledger) -> None:
    wishes = [PreferenceChange(channels={f"channel-{number}": False}) for number in range(20)]
    await asyncio.gather(*(ledger.change_preferences(None, "ada", one) for one in wishes))
    (held,) = await ledger.preferences([(None, "ada")])
    assert held is not None
    assert held.channels == {f"channel-{number}": False for number in range(20)}
