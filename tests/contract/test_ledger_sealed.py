"""Sealing holds for every operation: the contract suites run under seals, and no table shows what they wrote."""

import ast
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from carillon.domain.claims import AttemptNote, Settlement
from carillon.domain.digests import DigestEntry, ThrottleEntry, ThrottleRule
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Collapse, Enrolment, Route, Status
from carillon.domain.people import PreferenceChange
from carillon.domain.receipts import Receipt, ReceiptKind
from carillon.domain.rights import KnownPerson, Pending
from carillon.domain.suppressions import Suppression
from carillon.domain.verdicts import Bury
from carillon.ledger import columns, sealing
from carillon.ledger.columns import COLUMNS, Way
from carillon.ledger.postgres.ledger import PostgresLedger
from tests.contract import (
    test_ledger_admin,
    test_ledger_backlog,
    test_ledger_chains,
    test_ledger_claim_on_accept,
    test_ledger_digests,
    test_ledger_hasten,
    test_ledger_history,
    test_ledger_intake,
    test_ledger_leases,
    test_ledger_outbox,
    test_ledger_preferences,
    test_ledger_rehome,
    test_ledger_replay,
    test_ledger_rights,
    test_ledger_rights_others,
    test_ledger_settle,
    test_ledger_skipped,
    test_ledger_streams,
    test_ledger_streams_turns,
    test_ledger_synchronous,
    test_ledger_templates,
    test_ledger_timing,
    test_ledger_upkeep,
    test_ledger_waiting,
    test_receipts_matching,
    test_receipts_overdue,
    test_receipts_routes,
    test_receipts_suppressions,
    test_suppressions,
)
from tests.support.databases import Databases
from tests.support.ledger_builders import enrolment, notification, route, want
from tests.support.ledger_sealed import Canaries, SealedEngine, SealedPostgresEngine, SealedSqliteEngine, no_leaks
from tests.support.receipt_builders import RULES

pytestmark = pytest.mark.slow

SUITES: list[ModuleType] = [
    test_ledger_admin,
    test_ledger_backlog,
    test_ledger_chains,
    test_ledger_hasten,
    test_ledger_claim_on_accept,
    test_ledger_digests,
    test_ledger_timing,
    test_ledger_history,
    test_ledger_synchronous,
    test_ledger_intake,
    test_ledger_leases,
    test_ledger_outbox,
    test_ledger_preferences,
    test_ledger_rehome,
    test_ledger_replay,
    test_ledger_rights,
    test_ledger_rights_others,
    test_ledger_settle,
    test_ledger_skipped,
    test_ledger_streams,
    test_ledger_streams_turns,
    test_ledger_templates,
    test_ledger_upkeep,
    test_ledger_waiting,
    test_receipts_overdue,
    test_receipts_matching,
    test_receipts_routes,
    test_receipts_suppressions,
    test_suppressions,
]
_numbers = count(1)


class EmptyPostgres:
    """Engines on empty databases: the same database as long as only its rows change, with the connections it has."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._engine: SealedPostgresEngine | None = None
        self._give_back: Callable[[], None] = lambda: None

    async def another(self) -> SealedEngine:
        if self._engine is not None and self._databases.emptied(self._engine.dsn):
            self._engine.canaries = Canaries()
            return self._engine
        await self.aclose()
        dsn, self._give_back = self._databases.take()
        self._engine = SealedPostgresEngine(dsn, partial(self._databases.read, dsn))
        return self._engine

    async def aclose(self) -> None:
        if self._engine is not None:
            await self._engine.aclose()
            self._give_back()
            self._engine = None


Empty = Callable[[], Awaitable[SealedEngine]]


@pytest.fixture(params=["postgres", "sqlite"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Empty]:
    """Gives another empty database each time."""

    async def file() -> SealedEngine:
        return SealedSqliteEngine(tmp_path / f"{next(_numbers)}.db")

    if request.param == "sqlite":
        yield file
        return
    server = EmptyPostgres(request.getfixturevalue("databases"))
    yield server.another
    await server.aclose()


def cases(suite: ModuleType) -> list[Callable[..., Any]]:
    """The tests of a suite that ask for nothing but an engine and a ledger."""
    found = [
        each for name, each in vars(suite).items() if name.startswith("test_") and inspect.iscoroutinefunction(each)
    ]
    plain = [each for each in found if set(inspect.signature(each).parameters) <= {"engine", "ledger"}]
    return [each for each in plain if each.__name__ not in BY_HAND]


@pytest.mark.req("S2-34")
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__.rpartition(".")[2])
async def test_a_suite_holds_under_seals_and_leaves_nothing_readable(empty: Empty, suite: ModuleType) -> None:
    for case in cases(suite):
        wanted = inspect.signature(case).parameters
        engine = await empty()
        async with no_leaks(engine), AsyncExitStack() as stack:
            given: dict[str, Any] = {"engine": engine} if "engine" in wanted else {}
            if "ledger" in wanted:
                given["ledger"] = await stack.enter_async_context(engine.ledger())
            await case(**given)


def test_the_suites_drive_every_operation() -> None:
    asked = {
        node.attr
        for suite in [*SUITES, inspect.getmodule(cases)]
        for node in ast.walk(ast.parse(inspect.getsource(suite or SUITES[0])))
        if isinstance(node, ast.Attribute)
    }
    operations = {
        name
        for name, each in inspect.getmembers(PostgresLedger, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert not operations - asked - set(ELSEWHERE), "no suite under seals calls these"


BY_HAND = {
    "test_a_route_to_a_suppressed_address_is_not_claimed": "writes an address that is not sealed",
    "test_retention_forgets_expired_suppressions": "looks for an address that is not sealed",
    "test_a_text_is_found_in_ids_people_addresses_and_errors": "a sealed address is found whole only",
}

ELSEWHERE = {
    "queue_unclaimed": "lanes",
    "lost_tickets": "numbers of tickets",
    "put_back": "numbers of tickets",
    "aclose": "the engine's context calls it",
    "migrate": "the engine's context calls it",
    "refuse_newer": "reads versions",
    "check": "reads settings",
    "write_audit": "decision 12 leaves the audit log readable",
    "write_job_logs": "decision 12 leaves the tables of queues readable",
    "job_logs": "reads them",
    "begin_effect": "keys of effects",
    "finish_effect": "keys of effects",
    "abandon_effect": "keys of effects",
    "prune_jobs": "deletes",
    "prune_audit": "deletes",
    "add_templates": "templates, which stay readable",
    **dict.fromkeys(
        (
            "parts",
            "stories_of",
            "kept_of",
            "begin_erasure",
            "end_erasure",
            "mark_suppressions",
            "erase_person",
            "erase_mentions",
        ),
        "test_ledger_rights drives them through `erase` and `exported`",
    ),
    "foreseen": "reads keys and counts of gates",
    "action": "reads what `actions` reads",
    "category_choices": "counts choices by category",
    "history": "counts by channel, provider, template and tenant",
    "history_groups": "counts by channel, provider, template and tenant",
    "person_digests": "tests/scenario/test_listo_people.py shows them",
    "digest_contents": "tests/scenario/test_listo_people.py shows them",
    "redrive_skipped": "test_ledger_skipped drives it through the function of the same name",
    "give_up_receipts": "test_receipts_overdue drives it through `OverdueReceipts`",
    "overdue_receipts": "as above",
    "still_there": "ids of notifications",
    "unread_of_chains": "ids of notifications and routes",
    "keep_message": "tests/scenario/test_message_mail.py stores files under seals",
    "breaker_step": "providers",
    "target_states": "hosts and ports of endpoints, which stay readable",
    "change_target": "as above",
    "api_key": "keys of callers",
    "api_keys": "keys of callers",
    "add_api_key": "keys of callers",
    "revoke_api_key": "keys of callers",
    "touch_api_key": "keys of callers",
    "add_ticket": "user ids",
    "open_ticket": "user ids",
    "ticket": "user ids",
    "arrive": "user ids",
    "leave": "user ids",
    "renew": "replicas",
    "where": "user ids",
    "seal_keys": "ids of keys",
    "note_seal_key": "ids of keys",
    "forget_seal_keys": "ids of keys",
    "reseal": "test_listo_seals changes the key",
}

ADDRESS, NAME, TEXT = "canary-address@example.org", "Canary Name", "canary text of a message"


def gathered(to: Route, known: dict[str, str]) -> Enrolment:
    """An event that waits in a digest, and that has a key under which it is replaced."""
    entry = DigestEntry(
        digest_id="d-1",
        audience=ADDRESS,
        channels="email",
        key="news",
        closes_at_ms=1,
        most=5,
        size=1,
        intent_json=f'{{"to": "{ADDRESS}"}}',
    )
    event = enrolment(replace(to, status=Status.SKIPPED, skipped_because="gathered in a digest"), **known)
    return replace(event, digests=(entry,), collapse=Collapse("score", ADDRESS))


async def written(engine: SealedEngine) -> None:
    """Every sealed column is written, most of them in more than one way."""
    to = route(
        address=ADDRESS, recipient_ref=ADDRESS, route_id=f"email:{ADDRESS}", message_json=f'{{"text": "{TEXT}"}}'
    )
    known = {"payload_json": f'{{"name": "{NAME}"}}', "metadata_json": f'{{"about": "{NAME}"}}'}
    said = f"550 <{ADDRESS.upper()}> unknown"
    async with engine.ledger(alerts=True) as ledger:
        await ledger.enrol([enrolment(to, **known), enrolment(to, **known)])
        await ledger.look_up_earlier(notification(**known, idempotency_key="k"))
        claim, other = await ledger.claim([want()], 2, "worker")
        assert (claim.address, NAME in claim.payload_json, TEXT in str(claim.message_json)) == (ADDRESS, True, True)
        note = AttemptNote(provider="mailer", outcome="refused", duration_ms=1.0, classification="gone", error=said)
        gone = Suppression(claim.channel, ADDRESS, "", "gone", "delivery")
        await ledger.settle([Settlement(claim=claim, verdict=Bury("gone", said), note=note, suppression=gone)])
        sent = AttemptNote(provider="mailer", outcome="sent", duration_ms=1.0, provider_message_id="m-1")
        await ledger.settle([Settlement(claim=other, verdict=Bury("gone", said), note=sent)])
        bounced = Receipt(
            provider="mailer",
            kind=ReceiptKind.BOUNCED,
            provider_message_id="m-1",
            event_id="e",
            address=ADDRESS,
            reason=said,
        )
        await ledger.take_receipts([bounced], RULES)
        await ledger.suppress(
            [Suppression(channel="sms", address=ADDRESS, tenant_id="", reason="asked", source="operator")]
        )
        await ledger.change_preferences(None, "ann", PreferenceChange(contacts={"email": ADDRESS}))
        await ledger.enrol([gathered(to, known)])
        person = KnownPerson(tenant_id=None, person=f"email:{ADDRESS}", addresses=(ADDRESS,))
        await ledger.begin_erasure(Pending(subject="s", person=person, actor="root"), 30.0)
        raw = {"to": ADDRESS, "name": NAME, "text": TEXT}
        refused = f"no such recipient: {ADDRESS}"
        await ledger.keep_malformed(
            [Malformed(stream_entry_id="1", failure_code="X", failure_message=refused, raw_fields=raw)]
        )


async def readable(engine: SealedEngine) -> list[str]:
    return [
        f"{canary} in {table}"
        for table, told in (await engine.raw()).items()
        for canary in (ADDRESS, NAME, TEXT)
        if canary.lower() in told.lower()
    ]


@pytest.mark.req("S2-34")
async def test_nothing_that_names_a_person_can_be_read(empty: Empty) -> None:
    engine = await empty()
    await written(engine)
    assert not await readable(engine)


ONE_BY_ONE = sorted(columns.sealed_names().items())


@pytest.mark.parametrize(("column", "way"), ONE_BY_ONE)
async def test_a_column_without_its_codec_is_noticed(
    empty: Empty, monkeypatch: pytest.MonkeyPatch, column: str, way: Way
) -> None:
    """Control: each column in turn is left as it is."""
    left = {name: each for name, each in columns.sealed_names().items() if name != column}
    monkeypatch.setattr(sealing, "sealed_names", lambda: left)
    engine = await empty()
    await written(engine)
    assert await readable(engine), f"{column} is not sealed as {way}, and nobody notices"


async def test_a_text_that_keeps_the_address_is_noticed(empty: Empty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control of what vendors say, and of names made of addresses."""
    monkeypatch.setattr(sealing, "_without", lambda text, _address: text)
    engine = await empty()
    await written(engine)
    found = await readable(engine)
    assert {line.rpartition(" ")[2] for line in found} >= {"attempts", "dead_letters", "outbox", "routes", "receipts"}


async def test_every_column_is_declared(empty: Empty) -> None:
    engine = await empty()
    async with engine.ledger():
        found = await schema(engine)
    assert undeclared(found) == []
    assert sorted(set(COLUMNS) - set(found) - {"claim_tokens", "slots"}) == [], "declared, and in no database"


async def schema(engine: SealedEngine) -> dict[str, set[str]]:
    questions = {
        "postgres": "SELECT c.table_name AS place, c.column_name AS name FROM information_schema.columns c"
        " JOIN information_schema.tables t USING (table_schema, table_name)"
        " WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'",
        "sqlite": "SELECT t.name AS place, c.name AS name FROM sqlite_master t JOIN pragma_table_xinfo(t.name) c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
    }
    found: dict[str, set[str]] = {}
    for row in await engine.execute(questions[engine.dialect]):
        found.setdefault(row["place"], set()).add(row["name"])
    return found


def undeclared(found: dict[str, set[str]]) -> list[str]:
    return sorted(
        f"{table}.{column}" for table, names in found.items() for column in names - set(COLUMNS.get(table, {}))
    )


def test_an_undeclared_column_is_seen() -> None:
    assert undeclared({"routes": {"address", "nickname"}, "diaries": {"text"}}) == ["diaries.text", "routes.nickname"]


@pytest.mark.req("P-1106")
async def test_the_digest_and_the_throttle_of_an_address_are_found(empty: Empty) -> None:
    """Explain and the page of a person ask with the address; the rows have a name in its place."""
    engine, ref = await empty(), f"email:{ADDRESS}"
    to = route(address=ADDRESS, recipient_ref=ref, route_id=f"email:{ref}")
    event = gathered(to, {})
    event = replace(event, digests=tuple(replace(entry, audience=ref) for entry in event.digests), collapse=None)
    counted = ThrottleEntry(audience=ref, category="news", throttle=ThrottleRule(1, 3600.0, "1 in 1h"))
    async with engine.ledger() as ledger:
        await ledger.enrol([event, replace(enrolment(to, category="news"), throttles=(counted,))])
        assert [row["digest_id"] for row in await ledger.person_digests(None, ref, 10)] == ["d-1"]
        assert len(await ledger.throttle_times(None, ref, "news")) == 1
        assert await ledger.throttle_times(None, "email:other@example.org", "news") == []
    assert not await readable(engine)
