"""Acceptance in order over both engines: what is written, what is kept as malformed, and where it stops."""

from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from carillon.domain.consent import Categories, Category
from carillon.domain.events import Event, IntentMalformed, event_word
from carillon.domain.gate_events import RouteSuppressed
from carillon.domain.intents import Arrival, Intent, Malformed, Progress, Recipient
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.people import Found, NoSuchPerson, NotAnswered, PreferenceChange, Profile
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.suppressions import Suppression
from carillon.domain.templates import LocaleRules
from carillon.intake import in_order
from carillon.intake.in_order import OrderedIntake
from carillon.intake.people import PreferenceLookup, StoredPeople
from carillon.intake.plan import PlanRules
from carillon.intake.templates import FileTemplates
from carillon.ledger.opening import Ledger
from carillon.system import SystemClock
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

RULES = PlanRules(
    channels={"push": ("gateway",), "email": ("mail",)},
    policies=PolicyTable({"*/push": RetryPolicy(max_attempts=3), "*/*": RetryPolicy(max_attempts=7)}),
    lanes=Lanes({"standard": Lane(rank=2, queue_name="standard")}),
    locale=LocaleRules(default="en", on_missing="default"),
    supported_locales=("en", "pt"),
    categories=Categories(shared={"news": Category(name="news")}),
)
PEOPLE: dict[str, Found] = {
    "ada": Profile(addresses={"email": "ada@example.com"}, locale="pt-BR"),
    "bob": Profile(unreachable={"email": "no valid address"}, locale="pt"),
    "nobody": NoSuchPerson(),
    "silent": NotAnswered("503"),
}


class Directory:
    """Answers from a table."""

    async def find(self, user_ids: Collection[str]) -> dict[str, Found]:
        return {user: PEOPLE[user] for user in user_ids}

    async def aclose(self) -> None:
        """Hold nothing."""


class Door:
    """What a door sees of acceptance."""

    def __init__(self, ledger: Ledger) -> None:
        self.events: list[Event] = []
        self._intake = OrderedIntake(
            ledger=ledger,
            templates=FileTemplates({}),
            directory=Directory(),
            signal=ledger.signal,
            rules=RULES,
            observer=self.events.append,
            ids=lambda: "unused",
            clock=SystemClock(),
            add_choices=PreferenceLookup(StoredPeople(ledger), SystemClock()).choices,
        )

    async def bring(self, *arrivals: Arrival) -> Progress:
        return await self._intake.accept_in_order(arrivals)

    def words(self) -> list[str]:
        return [event_word(event) for event in self.events]


def arrival(entry: str, *users: str, key: str | None = None, **changes: Any) -> Arrival:
    intent = Intent(
        notification_type="game.turn.ready",
        producer="game_master",
        idempotency_key=key or entry,
        notification_id=entry,
        recipients=tuple(Recipient(ref=f"user:{user}", user_id=user, addresses={"push": user}) for user in users),
        channels=("push", "email"),
        payload={"turn": 1},
        content={"users": sorted(users), **changes.pop("content", {})},
    )
    fields = {"notification_type": "game.turn.ready", "audience_kind": "user", "trace_id": "t-1"}
    return Arrival(entry, fields, msgspec.structs.replace(intent, **changes))


def flawed(entry: str) -> Arrival:
    fields = {"x": "y"}
    return Arrival(
        entry, fields, Malformed(stream_entry_id=entry, failure_code="c", failure_message="m", raw_fields=fields)
    )


async def malformed(engine: Engine) -> dict[str, str]:
    return {row["stream_entry_id"]: row["failure_code"] for row in await engine.rows("malformed_intents")}


@pytest.mark.req("S1-94", "S1-96", "S1-97", "S1-105", "S1-106")
async def test_people_become_routes_with_what_the_directory_knows(engine: Engine, ledger: Ledger) -> None:
    door = Door(ledger)
    assert await door.bring(arrival("1-0", "ada", "bob")) == Progress(1)
    routes = {row["route_id"]: row for row in await engine.rows("routes")}
    assert set(routes) == {"push:user:ada", "email:user:ada", "push:user:bob", "email:user:bob"}
    assert [routes["email:user:ada"][name] for name in ("address", "resolved_locale", "status", "max_attempts")] == [
        "ada@example.com",
        "en",
        "pending",
        7,
    ]
    assert routes["push:user:ada"]["resolved_locale"] == "en"
    skipped = routes["email:user:bob"]
    assert (skipped["status"], skipped["last_error_message"], skipped["next_attempt_at"]) == (
        "skipped",
        "no valid address",
        None,
    )
    assert skipped["skipped_at"] is not None
    pushed = routes["push:user:bob"]
    assert (pushed["resolved_locale"], pushed["status"], pushed["attempt_count"]) == ("pt", "pending", 0)
    assert pushed["message_json"] is None
    assert door.words() == ["intent_accepted"]


async def test_a_route_that_is_skipped_for_a_suppression_is_told_of(ledger: Ledger) -> None:
    await ledger.suppress([Suppression("email", "ada@example.com", "", "bounced", "receipt", 60.0)])
    door = Door(ledger)
    await door.bring(arrival("1-0", "ada"), arrival("2-0", "ada", content={"again": True}), arrival("1-0", "ada"))
    assert door.words() == [
        "intent_accepted",
        "route_suppressed",
        "intent_accepted",
        "route_suppressed",
        "intent_accepted",
        "route_suppressed",
    ]
    told = door.events[1]
    assert isinstance(told, RouteSuppressed)
    assert (told.notification_id, told.route_id, told.channel) == ("1-0", "email:user:ada", "email")
    assert told.until_ms is not None


@pytest.mark.req("S1-101", "S1-102")
async def test_a_channel_nobody_is_told_on_keeps_its_slot(engine: Engine, ledger: Ledger) -> None:
    skips = {"push": "push is not a channel of it"}
    admin = Recipient(ref="email:ops@example.com", addresses={"email": "ops@example.com"})
    gap = Recipient(ref="config:geo")
    await Door(ledger).bring(
        arrival("1-0", recipients=(admin,), channels=("email",), skips=skips),
        arrival("2-0", recipients=(gap,), channels=(), skips={"email": "nobody is configured"}),
    )
    found = {row["route_id"]: (row["status"], row["last_error_message"]) for row in await engine.rows("routes")}
    assert found == {
        "email:email:ops@example.com": ("pending", None),
        "push:email:ops@example.com": ("skipped", "push is not a channel of it"),
        "email:config:geo": ("skipped", "nobody is configured"),
    }


@pytest.mark.req("S1-90", "S1-92")
async def test_a_person_nobody_knows_makes_the_whole_intent_malformed(engine: Engine, ledger: Ledger) -> None:
    door = Door(ledger)
    assert await door.bring(arrival("1-0", "ada", "nobody"), arrival("2-0", "ada")) == Progress(2)
    assert await malformed(engine) == {"1-0": "recipient_not_found"}
    assert {row["notification_id"] for row in await engine.rows("routes")} == {"2-0"}


@pytest.mark.req("S1-68")
async def test_it_stops_before_whom_the_directory_cannot_answer_for(engine: Engine, ledger: Ledger) -> None:
    door = Door(ledger)
    brought = [arrival("1-0", "ada"), flawed("2-0"), arrival("3-0", "silent"), arrival("4-0", "ada"), flawed("5-0")]
    assert await door.bring(*brought) == Progress(2, "503")
    assert {row["notification_id"] for row in await engine.rows("records")} == {"1-0"}
    assert await malformed(engine) == {"2-0": "c"}
    assert await door.bring(*brought[2:]) == Progress(0, "503")


@pytest.mark.req("S1-53", "S1-54", "S1-58", "S1-60")
async def test_repeats_and_conflicts_pass_without_a_row_of_their_own(engine: Engine, ledger: Ledger) -> None:
    door = Door(ledger)
    brought = [
        arrival("1-0", "ada", key="k"),
        arrival("2-0", "ada", key="k"),
        arrival("3-0", "ada", key="k", content={"turn": 2}),
        flawed("4-0"),
    ]
    for _ in range(2):
        assert await door.bring(*brought) == Progress(4)
    assert [row["notification_id"] for row in await engine.rows("records")] == ["1-0"]
    assert await malformed(engine) == {"3-0": "idempotency_conflict", "4-0": "c"}
    assert door.words()[:4] == ["intent_accepted", "intent_repeated", "intent_malformed", "intent_malformed"]


@pytest.mark.req("S1-57")
async def test_a_key_protects_as_long_as_its_record_lives(engine: Engine, ledger: Ledger) -> None:
    door = Door(ledger)
    await door.bring(arrival("1-0", "ada", key="k"))
    await engine.grow_old("records", "idempotency_expires_at", 40 * 86_400)
    await door.bring(arrival("2-0", "ada", key="k", content={"turn": 2}))
    assert await malformed(engine) == {"2-0": "idempotency_conflict"}
    told = door.events[-1]
    assert isinstance(told, IntentMalformed)
    assert told.reservation_expired


async def test_one_that_cannot_be_held_takes_no_other_along(engine: Engine, ledger: Ledger) -> None:
    door = Door(ledger)
    poison = arrival("2-0", "ada", notification_type="a\x00b\ud800")
    assert await door.bring(arrival("1-0", "ada"), poison, arrival("3-0", "ada")) == Progress(3)
    assert {row["notification_id"] for row in await engine.rows("records")} == {"1-0", "3-0"}
    assert await malformed(engine) == {"2-0": "invalid_payload"}


async def test_many_routes_are_written_in_several_statements(
    engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_order, "MOST_ROUTES", 5)
    assert await Door(ledger).bring(*(arrival(f"{number}-0", "ada", "bob") for number in range(1, 8))) == Progress(7)
    assert len(await engine.rows("records")) == 7


@pytest.mark.req("P-204")
async def test_the_gate_of_a_category_stands_at_this_door_too(ledger: Ledger) -> None:
    await ledger.change_preferences(None, "ada", PreferenceChange(categories={"news": {"push": False}}))
    door = Door(ledger)
    assert (await door.bring(arrival("9-1", "ada", "bob", category="news"))).done == 1
    story = await ledger.story("9-1", None)
    assert story is not None
    assert story.notification["category"] == "news"
    ends = {row["route_id"]: (row["status"], row["last_error_classification"]) for row in story.routes}
    assert ends["push:user:ada"] == ("skipped", "category")
    assert ends["push:user:bob"] == ("pending", None)
    assert ends["email:user:ada"] == ("pending", None)
    assert door.words() == ["intent_accepted", "route_gated"]


@pytest.mark.req("P-204")
async def test_an_unknown_category_is_kept_as_malformed(ledger: Ledger, engine: Engine) -> None:
    assert (await Door(ledger).bring(arrival("9-2", "ada", category="noise"))).done == 1
    (row,) = await engine.rows("malformed_intents")
    assert row["failure_message"] == "there is no category noise; known are news"
