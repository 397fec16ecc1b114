"""An erasure beside others: tenants, people with the same address, broadcasts, digests, and a process that dies."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from carillon.domain.admin import AdminAction, AuditRow
from carillon.domain.digests import DigestEntry
from carillon.domain.errors import ArchiveUnavailable
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Collapse, Route, Status
from carillon.domain.people import PreferenceChange
from carillon.domain.receipts import Receipt, ReceiptKind
from carillon.domain.suppressions import Suppression
from carillon.ledger.opening import Ledger
from carillon.system import SystemClock
from carillon.upkeep.consent.rights import UnfinishedErasures, erase, exported
from tests.contract.test_ledger_rights import everything
from tests.support.ledger_builders import bury, enrolment, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.receipt_builders import RULES

engine = engine_fixture()
ledger = ledger_fixture()

AT_ONCE = SystemClock(0.0)
"""No other process needs time to read the marks."""
ADA, BOB, MAIL = "ada-canary", "bob-other", "canary@mailbox.example"


async def canaries(engine: Engine) -> dict[str, str]:
    """The tables that name the person."""
    return {name: rows for name, rows in (await everything(engine)).items() if "canary" in rows.lower()}


async def exists(ledger: Ledger, tenant_id: str | None, person: str) -> list[dict[str, Any]]:
    return [each async for each in exported(ledger, tenant_id, person) if each["what"] == "notification"]


def bare(address: str = MAIL) -> Route:
    return route("x", recipient_ref=f"email:{address}", route_id=f"email:email:{address}", address=address)


@pytest.mark.req("P-220")
async def test_the_same_person_of_a_second_tenant_keeps_everything(ledger: Ledger, engine: Engine) -> None:
    for tenant in ("acme", "beta"):
        mine = route(ADA, address=MAIL)
        await ledger.enrol([enrolment(mine, tenant_id=tenant, user_id=ADA, recipient_user_ids=[ADA])])
        await ledger.change_preferences(tenant, ADA, PreferenceChange(contacts={"email": MAIL}))
        await ledger.suppress([Suppression("email", MAIL, tenant, "gone", "receipt")])
        raw = {"tenantId": tenant, "recipient": MAIL}
        await ledger.keep_malformed(
            [Malformed(stream_entry_id=f"{tenant}-1", failure_code="c", failure_message="bad", raw_fields=raw)]
        )
        await ledger.note_action(AdminAction(actor="ops", action="suppress", subject=MAIL, tenant_id=tenant))
    for claim in await ledger.claim([want()], 9, "w"):
        await ledger.settle([bury(claim)])
        key = f"{claim.notification_id}/{claim.route_id}"
        opened = Receipt(provider=claim.provider, kind=ReceiptKind.OPENED, idempotency_key=key, address=MAIL)
        await ledger.take_receipts([opened], RULES)
    for _ in range(2):
        found = await erase(ledger, AT_ONCE, "acme", ADA, actor="ops")
        assert found.finished
    after = await everything(engine)
    for table in ("records", "preferences", "suppressions", "malformed_intents", "admin_actions", "dead_letters"):
        (row,) = [row for row in json.loads(after[table]) if "canary" in json.dumps(row)]
        assert "acme" not in json.dumps(row), table
    assert MAIL in after["receipts"]
    assert len(await exists(ledger, "beta", ADA)) == 1
    assert not await exists(ledger, "acme", ADA)
    # Suppressed again, in both tenants, and erased in the second: neither stands in the other's way.
    for tenant in ("acme", "beta"):
        await ledger.suppress([Suppression("email", MAIL, tenant, "gone again", "receipt")])
        await ledger.change_preferences(tenant, ADA, PreferenceChange(contacts={"email": MAIL}))
    for tenant in ("beta", "acme"):
        assert (await erase(ledger, AT_ONCE, tenant, ADA, actor="ops")).suppressions_kept == 1
    assert not await canaries(engine)


@pytest.mark.req("P-220")
async def test_a_second_person_with_the_same_address_keeps_everything(ledger: Ledger, engine: Engine) -> None:
    for person in (ADA, BOB):
        await ledger.enrol([enrolment(route(person, address=MAIL), user_id=person, recipient_user_ids=[person])])
        await ledger.change_preferences(None, person, PreferenceChange(contacts={"email": MAIL}))
    assert [each["userId"] for each in await exists(ledger, None, ADA)] == [ADA]
    assert (await erase(ledger, AT_ONCE, None, ADA, actor="ops")).removed["records"] == 1
    (left,) = await exists(ledger, None, BOB)
    assert left["routes"][0]["recipient"] == MAIL
    assert ADA not in json.dumps(await everything(engine))
    await erase(ledger, AT_ONCE, None, BOB, actor="ops")
    assert not await canaries(engine)


@pytest.mark.req("P-220")
async def test_all_addresses_of_a_person_go(ledger: Ledger, engine: Engine) -> None:
    old, phone = "canary-old@mailbox.example", "+4915100canary"
    for address in (MAIL, old):
        await ledger.enrol([enrolment(route(ADA, address=address), user_id=ADA)])
        await ledger.suppress([Suppression("email", address, "", "gone", "receipt")])
    await ledger.change_preferences(None, ADA, PreferenceChange(contacts={"phone": phone}))
    await ledger.suppress([Suppression("sms", phone, "", "gone", "receipt")])
    # Sent to the address alone, and chosen under it.
    await ledger.enrol([enrolment(bare(old))])
    await ledger.change_preferences(None, f"email:{old}", PreferenceChange(categories={"news": {"email": False}}))
    found = await erase(ledger, AT_ONCE, None, ADA, actor="ops")
    assert (found.suppressions_kept, found.removed["records"], found.removed["preferences"]) == (3, 3, 2)
    assert not await canaries(engine)


@pytest.mark.req("P-220")
async def test_a_broadcast_loses_one_recipient(ledger: Ledger, engine: Engine) -> None:
    names = [f"reader-{number}" for number in range(40)]
    routes = [route(name, address=f"{name}@others.example") for name in names]
    mine = route(ADA, address=MAIL, message_json='{"text":"Dear canary"}')
    sent = enrolment(*routes, mine, recipient_user_ids=[*names, ADA], payload_json='{"issue": 7}')
    await ledger.enrol([sent])
    for claim in await ledger.claim([want()], 50, "w"):
        await ledger.settle([bury(claim)])
    found = await erase(ledger, AT_ONCE, None, ADA, actor="ops")
    assert (found.removed.get("records", 0), found.removed["routes"]) == (0, 1)
    assert not await canaries(engine)
    after = await everything(engine)
    for table in ("routes", "dead_letters", "attempts"):
        assert len(json.loads(after[table])) == len(names), table
    (record,) = json.loads(after["records"])
    left = record["recipient_user_ids"]
    assert sorted(left if isinstance(left, list) else json.loads(left)) == sorted(names)
    assert len((await exists(ledger, None, names[0]))[0]["routes"]) == 1


def gathered(person: str, address: str, digest_id: str) -> DigestEntry:
    return DigestEntry(
        digest_id=digest_id,
        audience=person,
        channels="email",
        key="news",
        closes_at_ms=1,
        most=5,
        size=1,
        intent_json=json.dumps({"to": address}),
    )


@pytest.mark.req("P-220")
async def test_a_digest_of_somebody_else_keeps_its_events(ledger: Ledger, engine: Engine) -> None:
    waits = {"status": Status.SKIPPED, "skipped_because": "gathered in a digest"}
    mine, others = route(ADA, address=MAIL, **waits), route(BOB, address="bob@others.example", **waits)
    both = enrolment(mine, others, recipient_user_ids=[ADA, BOB])
    entries = (gathered(f"user:{ADA}", MAIL, "d-1"), gathered(f"user:{BOB}", "bob@others.example", "d-2"))
    await ledger.enrol([replace(both, digests=entries)])
    assert (await erase(ledger, AT_ONCE, None, ADA, actor="ops")).removed["digests"] == 1
    assert not await canaries(engine)
    after = await everything(engine)
    assert [row["digest_id"] for row in json.loads(after["digest_members"])] == ["d-2"]
    assert [row["digest_id"] for row in json.loads(after["digests"])] == ["d-2"]


@pytest.mark.req("P-220")
async def test_a_person_who_is_known_by_an_address_only(ledger: Ledger, engine: Engine) -> None:
    person = f"email:{MAIL}"
    waits = replace(bare(), status=Status.SKIPPED, skipped_because="gathered in a digest")
    event = replace(
        enrolment(waits, payload_json='{"name":"Canary"}'),
        digests=(gathered(person, MAIL, "d-1"),),
        collapse=Collapse("score", person),
    )
    await ledger.enrol([event])
    await ledger.change_preferences(None, person, PreferenceChange(categories={"news": {"email": False}}))
    await ledger.suppress([Suppression("email", MAIL, "", "gone", "receipt")])
    things = [each async for each in exported(ledger, None, person)]
    assert {each["what"] for each in things} == {
        "person",
        "preferences",
        "suppression",
        "digest",
        "notification",
        "end",
    }
    found = await erase(ledger, AT_ONCE, None, person, actor="ops")
    wanted = {"records": 1, "digests": 1, "collapses": 1, "preferences": 1}
    assert {name: found.removed[name] for name in wanted} == wanted
    assert found.suppressions_kept == 1
    assert not await canaries(engine)


@pytest.mark.req("P-222")
async def test_a_process_that_died_loses_no_address(ledger: Ledger, engine: Engine) -> None:
    await ledger.enrol([enrolment(route(ADA, address=MAIL), user_id=ADA)])
    await ledger.suppress([Suppression("email", MAIL, "", "gone", "receipt")])
    away = [ArchiveUnavailable("not there")]

    async def forget(*_: object) -> None:
        if away:
            raise away.pop()

    found = await erase(ledger, AT_ONCE, None, ADA, actor="ops", places={"history": forget})
    assert found.unfinished == ("history",)
    # The route was the only trace of the address, and the suppression came back before the erasure goes on.
    await ledger.suppress([Suppression("email", MAIL, "", "late report", "receipt")])
    (pending,) = await ledger.pending_erasures(waiting=False)
    assert pending.person.addresses == (MAIL,)
    assert not await ledger.pending_erasures(waiting=True), "its process may be at work"
    loop = UnfinishedErasures(ledger, {"history": forget}, SystemClock(), lambda _: None)
    assert await loop.look(waiting=False) == 1
    assert not await ledger.pending_erasures(waiting=False)
    assert not await canaries(engine)


@pytest.mark.req("P-220")
async def test_names_are_no_wider_than_the_person(ledger: Ledger, engine: Engine) -> None:
    for number, raw in enumerate([{"email": "x"}, {"to": "email"}, {"tenantId": "beta", "to": "zoë"}, {"to": "zoë"}]):
        await ledger.keep_malformed(
            [Malformed(stream_entry_id=f"1-{number}", failure_code="c", failure_message="bad", raw_fields=raw)]
        )
    action = AdminAction(actor="ops", action="cancel", subject="many", detail={"filters": {"userId": "zoë"}})
    await ledger.note_action(action)
    assert (await erase(ledger, AT_ONCE, None, "email", actor="ops")).removed["malformed_intents"] == 1
    found = await erase(ledger, AT_ONCE, None, "zoë", actor="ops")
    assert (found.removed["malformed_intents"], found.removed["admin_actions"]) == (1, 1)
    rows, _ = await ledger.actions({"action": "cancel"}, 10, 0)
    assert "(erased)" in json.dumps(rows[0], default=str)
    left = json.loads((await everything(engine))["malformed_intents"])
    assert sorted(row["stream_entry_id"] for row in left) == ["1-0", "1-2"]


@pytest.mark.req("P-1105")
async def test_the_log_of_the_push_worker_is_in_no_tenants_export(ledger: Ledger) -> None:
    """The push worker knows no tenants: a line of its log is about the user of this id without one."""
    line = AuditRow(
        audit_key="k-1",
        trace_id="t-1",
        user_id=ADA,
        notification_type="push",
        template_id="welcome",
        status="sent",
        metadata_json="{}",
    )
    await ledger.write_audit([line])
    for tenant, lines in ((None, 1), ("acme", 0)):
        found = [one["what"] async for one in exported(ledger, tenant, ADA)]
        assert found.count("auditEntry") == lines
    await erase(ledger, AT_ONCE, None, ADA, actor="ops")
