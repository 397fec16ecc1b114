"""A person's rights on both engines: after an erasure, no table names the person; everybody else stays."""

import json
from typing import Any

import pytest

from carillon.domain.admin import AdminAction
from carillon.domain.errors import ArchiveUnavailable
from carillon.domain.intents import Malformed
from carillon.domain.people import PreferenceChange
from carillon.domain.rights import KnownPerson
from carillon.domain.suppressions import Suppression
from carillon.intake import erased
from carillon.intake.erased import ErasedAddresses
from carillon.ledger.columns import COLUMNS, ERASURE, Erased
from carillon.ledger.opening import Ledger
from carillon.system import SystemClock
from carillon.upkeep.consent.rights import erase, exported
from tests.support.ledger_builders import bury, enrolment, finish, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

AT_ONCE = SystemClock(0.0)
"""No other process needs time to read the marks."""
_EVERYTHING = {table: f"SELECT * FROM {table}" for table in COLUMNS}  # noqa: S608 - our own names
PERSON, MAIL, OTHER = "canary-person", "canary@mailbox.example", "somebody-else"


async def everything(engine: Engine) -> dict[str, str]:
    """Every table that this ledger has, raw, as text."""
    found: dict[str, str] = {}
    for table, statement in _EVERYTHING.items():
        try:
            rows = await engine.execute(statement)
        except Exception:  # noqa: BLE001, S112 - the tables of some parts are not there
            continue
        found[table] = json.dumps([dict(row) for row in rows], default=str)
    return found


async def live(ledger: Ledger) -> None:
    """Rows about the person and about somebody else in every table that can hold some."""
    own = {"user_id": PERSON, "recipient_user_ids": [PERSON], "payload_json": '{"name":"Canary Payload"}'}
    mine = route(PERSON, address=MAIL, message_json='{"text":"Dear Canary Payload"}')
    both = route(OTHER, address="other@mailbox.example")
    bare = route("x", recipient_ref=f"email:{MAIL}", route_id=f"email:email:{MAIL}", address=MAIL)
    await ledger.enrol([enrolment(mine, **own) for _ in range(3)])
    await ledger.enrol([enrolment(mine, both, recipient_user_ids=[PERSON, OTHER])])
    await ledger.enrol([enrolment(bare, payload_json='{"name":"Canary Payload"}')])
    await ledger.enrol([enrolment(both, user_id=OTHER, recipient_user_ids=[OTHER])])
    claims = await ledger.claim([want()], 3, "w")
    await ledger.settle([finish(claims[0]), bury(claims[1]), bury(claims[2])])
    for user, address in ((PERSON, MAIL), (OTHER, "other@mailbox.example")):
        await ledger.change_preferences(
            None, user, PreferenceChange(contacts={"email": address}, channels={"sms": False})
        )
    await ledger.suppress([Suppression("email", MAIL, "", "no mailbox of canary", "receipt")])
    raw: dict[str, Any] = {"recipient": MAIL, "data": {"name": "x"}}
    await ledger.keep_malformed(
        [
            Malformed(stream_entry_id="1-1", failure_code="c", failure_message=f"bad {MAIL}", raw_fields=raw),
            Malformed(stream_entry_id="1-2", failure_code="c", failure_message="bad", raw_fields={"a": "about nobody"}),
        ]
    )
    await ledger.note_action(
        AdminAction(actor="ops", action="suppress", subject=MAIL, detail={"filters": {"x": PERSON}})
    )


@pytest.mark.req("P-220")
async def test_no_canary_is_left_and_everybody_else_is(ledger: Ledger, engine: Engine) -> None:
    await live(ledger)
    before = await everything(engine)
    assert {name for name, rows in before.items() if "canary" in rows.lower()} >= {"records", "routes", "suppressions"}
    found = await erase(ledger, AT_ONCE, None, PERSON, actor="ops")
    assert found.finished
    assert (found.removed["records"], found.removed["routes"], found.suppressions_kept) == (4, 1, 1)
    after = await everything(engine)
    assert not {name: rows for name, rows in after.items() if "canary" in rows.lower()}
    assert {name for name, rows in after.items() if OTHER in rows} >= {"records", "routes", "preferences"}
    assert "about nobody" in after["malformed_intents"]
    (shared,) = [row for row in json.loads(after["routes"]) if row["recipient_ref"] == f"user:{OTHER}"][:1]
    assert shared["address"] == "other@mailbox.example"
    # Repeated, it finds nothing more and stays finished.
    again = await erase(ledger, AT_ONCE, None, PERSON, actor="ops")
    assert again.finished
    assert not any(again.removed.values())


@pytest.mark.req("P-221")
async def test_the_person_stays_suppressed(ledger: Ledger) -> None:
    await live(ledger)
    await erase(ledger, AT_ONCE, None, PERSON, actor="ops")
    held = ErasedAddresses(ledger, SystemClock())
    assert await held.hold("email", MAIL, None)
    assert await held.hold("email", MAIL, "acme")
    assert not await held.hold("sms", MAIL, None)
    assert not await held.hold("email", "other@mailbox.example", None)
    rows, _ = await ledger.suppressions({"source": "erasure"}, 10, 0)
    assert [row["address"].startswith("erased:") for row in rows] == [True]


@pytest.mark.req("P-535", "P-221")
async def test_the_oldest_of_many_stays_suppressed_too(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erased, "_MOST", 2)
    for number in range(4):
        who, address = f"person-{number}", f"person-{number}@example.org"
        tenant = "acme" if number == 0 else None
        await ledger.enrol([enrolment(route(who, address=address), tenant_id=tenant, user_id=who)])
        await ledger.suppress([Suppression("email", address, tenant or "", "gone", "receipt")])
        await erase(ledger, AT_ONCE, tenant, who, actor="ops")
    held = ErasedAddresses(ledger, SystemClock())
    assert [await held.hold("email", f"person-{number}@example.org", "acme") for number in range(5)] == [True] * 4 + [
        False
    ]
    assert not await held.hold("email", "person-0@example.org", None), "only one tenant has suppressed it"
    assert not await held.hold("sms", "person-1@example.org", None)


@pytest.mark.req("P-220")
async def test_another_tenants_person_of_the_same_id_stays(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(PERSON, address=MAIL), tenant_id="acme", user_id=PERSON)])
    await ledger.change_preferences("acme", PERSON, PreferenceChange(preferred_locale="de"))
    assert not any((await erase(ledger, AT_ONCE, None, PERSON, actor="ops")).removed.values())
    assert (await ledger.preferences([("acme", PERSON)]))[0] is not None
    found = await erase(ledger, AT_ONCE, "acme", PERSON, actor="ops")
    assert (found.removed["records"], found.removed["preferences"]) == (1, 1)


@pytest.mark.req("P-222")
async def test_what_cannot_be_reached_is_named_and_the_trail_says_so(ledger: Ledger) -> None:
    async def away(person: KnownPerson) -> None:
        raise ArchiveUnavailable(f"not there for {person.person}")

    await live(ledger)
    found = await erase(ledger, AT_ONCE, None, PERSON, actor="ops", places={"history": away})
    assert (found.finished, found.unfinished) == (False, ("history",))
    actions, _ = await ledger.actions({"action": "erase"}, 10, 0)
    details = [row["detail"] if isinstance(row.get("detail"), dict) else json.loads(row["detail"]) for row in actions]
    assert [detail["finished"] for detail in details] == [False, False]
    assert details[0]["unfinished"] == ["history"]
    assert {row["subject"].split(":")[0] for row in actions} == {"erased"}
    assert len({row["subject"] for row in actions}) == 1


@pytest.mark.req("P-222")
async def test_an_erasure_that_was_cut_off_goes_on(ledger: Ledger, engine: Engine) -> None:
    await live(ledger)
    person = await ledger.person(None, PERSON)
    assert (await ledger.erase_notifications(person, "")).rows
    assert (await erase(ledger, AT_ONCE, None, PERSON, actor="ops")).finished
    assert not {name for name, rows in (await everything(engine)).items() if "canary" in rows.lower()}


@pytest.mark.req("P-220")
async def test_a_person_who_came_back_is_erased_again(ledger: Ledger, engine: Engine) -> None:
    for _ in range(3):
        await live(ledger)
        found = await erase(ledger, AT_ONCE, None, PERSON, actor="ops")
        assert (found.finished, found.suppressions_kept) == (True, 1)
        assert not {name for name, rows in (await everything(engine)).items() if "canary" in rows.lower()}


@pytest.mark.req("P-223")
async def test_an_export_has_everything_about_the_person_and_nobody_else(ledger: Ledger) -> None:
    await live(ledger)
    things = [thing async for thing in exported(ledger, None, PERSON)]
    assert not [name for thing in things for name in thing if "_" in name], "the API's names have no underscores"
    assert things.pop() == {"what": "end", "count": len(things)}
    kinds = [thing["what"] for thing in things]
    assert kinds[:3] == ["person", "preferences", "suppression"]
    assert kinds.count("notification") == 5
    assert things[0]["addresses"] == [MAIL]
    assert any(thing.get("data") == {"name": "Canary Payload"} for thing in things)
    assert "other@mailbox.example" not in json.dumps(things, default=str)
    assert not {name for thing in things for name in _names(thing) if "_" in name}
    # The suites under seals look at what is left in the tables, and the audit trail is readable there.
    await erase(ledger, AT_ONCE, None, PERSON, actor="ops")


def _names(thing: Any) -> list[str]:
    """Every name in an object, and in those inside of it."""
    if isinstance(thing, list):
        return [name for each in thing for name in _names(each)]
    return [*thing, *(name for each in thing.values() for name in _names(each))] if isinstance(thing, dict) else []


@pytest.mark.req("P-220")
def test_every_table_says_what_an_erasure_does_to_it() -> None:
    assert set(ERASURE) == set(COLUMNS)
    personal = {name for name, columns in COLUMNS.items() if {"user_id", "address", "recipient_ref"} & set(columns)}
    assert not {name for name in personal if ERASURE[name] is Erased.NOBODY}


def test_names_are_found_as_whole_words() -> None:
    person = KnownPerson(tenant_id=None, person="ada", addresses=("a@b.example",))
    assert person.mentioned({"user": "ada"})
    assert not person.mentioned({"ada": "x"})
    assert person.mentioned("Thank you, ada.")
    assert person.mentioned("mail to a@b.example failed")
    assert not person.mentioned("canada and xa@b.example.org")
    assert person.without("ada wrote to a@b.example") == "(erased) wrote to (erased)"
