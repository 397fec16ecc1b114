"""Preferences in the ledger: changes meet what is there, not what somebody had read."""

import asyncio
import json

import pytest
import pytest_asyncio

from carillon.domain.claims import Settled, Settlement
from carillon.domain.people import PreferenceChange, QuietHours
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import enrolment, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

QUIET = QuietHours(enabled=True, start_time="22:00", end_time="07:00", timezone="Europe/Berlin")


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
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


@pytest.mark.req("P-202")
async def test_choices_by_category_and_channel(ledger: Ledger) -> None:
    await ledger.change_preferences(
        None, "ada", PreferenceChange(categories={"news": {"email": False, "sms": True}}, time_zone="Europe/Berlin")
    )
    held = await ledger.change_preferences(None, "ada", PreferenceChange(categories={"news": {"push": False}}))
    assert held.categories == {"news": {"email": False, "sms": True, "push": False}}
    held = await ledger.change_preferences(
        None, "ada", PreferenceChange(categories={"orders": {"email": True}, "news": {"email": None}})
    )
    assert held.categories == {"news": {"sms": True, "push": False}, "orders": {"email": True}}
    assert (held.time_zone, await ledger.preferences([(None, "ada")])) == ("Europe/Berlin", [held])
    held = await ledger.change_preferences(None, "ada", PreferenceChange(channels={"sms": False}))
    assert held.categories["orders"] == {"email": True}
    held = await ledger.change_preferences(
        None, "ada", PreferenceChange(categories={"news": {"email": False, "sms": None}}, replace=True)
    )
    assert (held.categories, held.time_zone, held.channels) == ({"news": {"email": False}}, None, {})


@pytest.mark.req("P-203")
async def test_a_claim_knows_what_its_person_chose_meanwhile(ledger: Ledger) -> None:
    bare = route("bob", recipient_ref="email:bob@example.com", route_id="email:email:bob@example.com")
    await ledger.enrol([enrolment(category="news"), enrolment(bare, category="news"), enrolment(route("eve"))])
    for person in ("ann", "email:bob@example.com", "eve"):
        await ledger.change_preferences(None, person, PreferenceChange(categories={"news": {"email": False}}))
    # Under seals a bare address is not readable in `recipient_ref`.
    claims = {claim.address: claim for claim in await ledger.claim([want()], 10, "w")}
    said = '{"channels" : {}, "categories" : {"news": {"email": false}}}'
    for ref in ("ann@example.com", "bob@example.com"):
        assert claims[ref].category == "news"
        assert json.loads(claims[ref].wishes_json or "") == json.loads(said)
    assert (claims["eve@example.com"].category, claims["eve@example.com"].wishes_json) == (None, None)


@pytest.mark.req("P-203")
async def test_a_route_that_a_gate_ends_is_skipped_and_no_dead_letter(ledger: Ledger, engine: Engine) -> None:
    await ledger.enrol([enrolment(category="news")])
    (claim,) = await ledger.claim([want()], 1, "w")
    (settled,) = await ledger.settle([Settlement(claim=claim, verdict=Skip("category", "left"))])
    assert settled is Settled.APPLIED
    story = await ledger.story(claim.notification_id, None)
    assert story is not None
    (row,) = story.routes
    assert (row["status"], row["last_error_classification"], row["last_error_message"]) == (
        "skipped",
        "category",
        "left",
    )
    assert (row["attempt_count"], row["skipped_at"] is not None, row["next_attempt_at"]) == (0, True, None)
    assert await engine.rows("dead_letters") == []
    assert await ledger.claim([want()], 1, "w") == []
