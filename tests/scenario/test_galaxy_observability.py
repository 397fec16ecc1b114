"""Metrics and log lines of a running process under exactly the galaxy blueprint's names, through its exporters."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.galaxy_seen import ADMINISTRATORS, PATIENT, Point, exported, intent, number_is
from tests.support.galaxy_stand import GATEWAY, Galaxy
from tests.support.http_client import Client
from tests.support.otlp import collecting
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_STDOUT = {"NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED": "true", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
TRACED = {"NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED": "true"}
NAMES = {
    "notification.intent.outcomes": {"notification_type", "producer", "audience_kind", "outcome"},
    "notification.intent.malformed": {"failure_code"},
    "notification.user_enrichment.attempts": {"result"},
    "notification.route.publish_attempts": {"channel", "notification_type", "result"},
    "notification.route.retries": {"channel", "failure_classification"},
    "notification.route.dead_letters": {"channel", "failure_classification"},
    "notification.route_schedule.depth": set(),
    "notification.route_schedule.oldest_age_ms": set(),
    "notification.intent_stream.oldest_unprocessed_age_ms": set(),
}
PLANTED = ("secret-user", "secret-key", "secret@example.com")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, shared_redis: Redis
) -> AsyncIterator[Galaxy]:
    """A process that exports every tenth of a second, after one of everything has happened."""
    dsn = postgres.database()
    quick = {"NOTIFICATION_ROUTE_BACKOFF_MIN": "20ms", "NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS": "2"}
    given = ADMINISTRATORS | PATIENT | ON_STDOUT | TRACED | quick
    async with Galaxy(tmp_path_factory.mktemp("watched"), dsn, shared_redis, **given) as stand:
        stand.start()
        await one_of_everything(stand)
        yield stand
    postgres.drop(dsn)


async def one_of_everything(stand: Galaxy) -> None:
    stand.users.people |= {
        "secret-user": {"email": "secret@example.com", "preferred_language": "en"},
        "nobody": None,
    }
    fields = intent(recipient_user_ids_json='["secret-user"]', idempotency_key="secret-key")
    fields |= {"request_id": "r-1", "trace_id": "0af7651916cd43dd8448eb211c80319c"}
    first = await stand.publish(fields)
    await stand.routes(first, status="published")
    await stand.publish(fields)
    await stand.malformed(await stand.publish(fields | {"occurred_at_ms": "1"}))
    await stand.malformed(await stand.publish(intent(recipient_user_ids_json='["nobody"]')))
    await stand.malformed(await stand.publish({**intent(), "notification_type": "secret-user"}))
    await stand.malformed(await stand.publish(intent(producer="secret-key", audience_kind="secret@example.com")))
    await stand.routes(await stand.publish(intent("game.generation_failed")), status="published")
    stand.users.answer(Reply(503), path="/api/v1/internal/users/late")
    await stand.routes(await stand.publish(intent(recipient_user_ids_json='["late"]')), status="published")
    await stand.redis.rename(GATEWAY, "kept")
    await stand.redis.set(GATEWAY, "not a stream")
    dead = await stand.publish(intent(recipient_user_ids_json='["secret-user"]'))
    await stand.row_once("SELECT 1 FROM dead_letters WHERE notification_id = $1", dead)
    await stand.redis.delete(GATEWAY)
    # Lines and spans follow what happened.
    await stand.programs[0].until("route_attempted", lambda line: line["verdict"] == "bury")
    await stand.programs[0].until("span", lambda line: line["name"] == "intent malformed")


def is_exactly(wanted: list[Point]) -> Any:
    def by_attributes(point: Point) -> str:
        return str(point[0])

    return lambda points: sorted(points, key=by_attributes) == sorted(wanted, key=by_attributes)


def outcome(name: str, producer: str, kind: str, word: str) -> dict[str, str]:
    return {"outcome": word, "notification_type": name, "producer": producer, "audience_kind": kind}


@pytest.mark.req("S1-167")
async def test_outcomes(watched: Galaxy) -> None:
    accepted = outcome("game.turn.ready", "game_master", "user", "accepted")
    # The last of everything that happened; an export may be older than that.
    points = await number_is(
        watched.programs[0], "notification.intent.outcomes", lambda points: (accepted, 3) in points
    )
    totals = {tuple(sorted(attributes.items())): value for attributes, value in points}

    def total(*words: str) -> float | None:
        return totals.get(tuple(sorted(outcome(*words).items())))

    assert total("game.turn.ready", "game_master", "user", "accepted") == 3
    assert total("game.turn.ready", "game_master", "user", "duplicate") == 1
    assert total("game.turn.ready", "game_master", "user", "rejected") == 2
    assert total("game.generation_failed", "game_master", "admin_email", "accepted") == 1
    assert {attributes["outcome"] for attributes, _ in points} == {"accepted", "duplicate", "rejected"}


@pytest.mark.req("S1-168")
async def test_malformed(watched: Galaxy) -> None:
    codes = ("idempotency_conflict", "recipient_not_found", "unsupported_notification_type", "invalid_audience")
    wanted: list[Point] = [({"failure_code": code}, 1) for code in codes]
    await number_is(watched.programs[0], "notification.intent.malformed", is_exactly(wanted))


def asked(points: list[Point]) -> float:
    return sum(value for _, value in points)


@pytest.mark.req("S1-169")
async def test_enrichment(watched: Galaxy) -> None:
    points = await number_is(
        watched.programs[0],
        "notification.user_enrichment.attempts",
        lambda points: len(points) == 3 and asked(points) >= 5,
    )
    found = {attributes["result"]: value for attributes, value in points}
    assert all(set(attributes) == {"result"} for attributes, _ in points)
    assert (found["not_found"], found["failed"]) == (1, 1)
    assert found["found"] >= 3


@pytest.mark.req("S1-170", "S1-171", "S1-172")
async def test_publication(watched: Galaxy) -> None:
    program = watched.programs[0]
    failure = {"channel": "push", "failure_classification": "gateway_stream_publish_failed"}
    await number_is(program, "notification.route.retries", is_exactly([(failure, 1)]))
    await number_is(program, "notification.route.dead_letters", is_exactly([(failure, 1)]))
    turn, failed = "game.turn.ready", "game.generation_failed"
    wanted: list[Point] = [
        ({"channel": "push", "notification_type": turn, "result": "published"}, 2),
        ({"channel": "push", "notification_type": turn, "result": "failed"}, 2),
        ({"channel": "email", "notification_type": turn, "result": "published"}, 3),
        ({"channel": "email", "notification_type": failed, "result": "published"}, 1),
    ]
    await number_is(program, "notification.route.publish_attempts", is_exactly(wanted))


@pytest.mark.req("S1-176")
async def test_names_and_attributes_are_exactly_those(watched: Galaxy) -> None:
    program = watched.programs[0]
    await number_is(program, "notification.route.dead_letters", bool)
    await number_is(program, "notification.intent.outcomes", lambda points: len(points) >= 4)
    found = exported(program)
    assert set(found) == set(NAMES)
    for name, points in found.items():
        for attributes, _ in points:
            assert set(attributes) == NAMES[name], name
    # The words are there to be found, in lines that may carry them.
    assert {"secret-user", "secret-key"} <= {str(line.get(name)) for line in program.lines for name in KNOWN}
    text = json.dumps(program.events("metrics"))
    for word in (*PLANTED, "user-1", *(row["notification_id"] for row in await watched.rows("SELECT * FROM records"))):
        assert word not in text, word


@pytest.mark.req("S1-173", "S1-174")
async def test_the_schedule(galaxy: Galaxy) -> None:
    program = galaxy.start("--roles", "doors,upkeep", **ON_STDOUT)
    await number_is(program, "notification.route_schedule.depth", is_exactly([({}, 0)]))
    await number_is(program, "notification.route_schedule.oldest_age_ms", is_exactly([({}, 0)]))
    await galaxy.routes(await galaxy.publish(intent()))
    await number_is(program, "notification.route_schedule.depth", is_exactly([({}, 4)]))
    await galaxy.execute(
        "UPDATE routes SET next_attempt_at = now() - interval '90 s' WHERE route_id = 'push:user:user-1'"
    )

    def old(points: list[Point]) -> bool:
        return bool(points) and 90_000 <= points[0][1] < 120_000

    await number_is(program, "notification.route_schedule.oldest_age_ms", old)
    await galaxy.execute("UPDATE routes SET next_attempt_at = now() + interval '1 h'")
    # Nothing is due: no age below nothing.
    await number_is(program, "notification.route_schedule.oldest_age_ms", is_exactly([({}, 0)]))
    (row,) = await galaxy.rows("SELECT count(*) AS n FROM routes WHERE next_attempt_at IS NOT NULL")
    assert exported(program)["notification.route_schedule.depth"] == [({}, row["n"])]


@pytest.mark.req("S1-175")
async def test_the_lag_of_the_stream(galaxy: Galaxy) -> None:
    program = galaxy.start(**ON_STDOUT)
    name = "notification.intent_stream.oldest_unprocessed_age_ms"
    await number_is(program, name, is_exactly([({}, 0)]))
    galaxy.users.default = Reply(503)
    await galaxy.publish(intent())
    (first,) = await number_is(program, name, lambda points: points[0][1] > 0)
    await number_is(program, name, lambda points: points[0][1] > first[1] + 150)
    galaxy.users.default = galaxy.users.known
    await number_is(program, name, is_exactly([({}, 0)]))


KNOWN = (
    "notification_id",
    "notification_type",
    "producer",
    "audience_kind",
    "idempotency_key",
    "request_id",
    "trace_id",
)


@pytest.mark.req("S1-177", "S1-178")
async def test_log_lines_name_what_they_are_about(watched: Galaxy) -> None:
    program = watched.programs[0]
    mine = [line for line in program.lines if line.get("idempotency_key") == "secret-key"]
    by_event = {line["event"]: line for line in mine}
    assert {"intent_accepted", "intent_repeated", "intent_malformed", "route_attempted"} <= set(by_event)
    for name in ("intent_accepted", "intent_repeated", "route_attempted"):
        assert all(by_event[name].get(field) for field in KNOWN), by_event[name]
    assert all(by_event["intent_malformed"].get(field) for field in KNOWN[1:])
    attempts = [line for line in program.events("route_attempted") if line["channel"] == "push"]
    assert {line["verdict"] for line in attempts} == {"finish", "retry", "bury"}
    for line in attempts:
        assert line["route_id"].startswith("push:user:")
    # Each of these was seen by a span.
    for line in by_event.values():
        assert len(line["otel_trace_id"]) == 32
        assert len(line["otel_span_id"]) == 16
    assert by_event["intent_accepted"]["otel_trace_id"] == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.req("S1-15", "S1-35", "S1-178")
async def test_spans_on_stdout(watched: Galaxy) -> None:
    Client(watched.address).get("/healthz")
    program = watched.programs[0]
    for name in ("intent accepted", "intent malformed", "route push", "route email", "person sought", "GET /healthz"):
        await program.until("span", lambda line, name=name: line["name"] == name)  # type: ignore[misc]


@pytest.mark.req("S1-179", "S1-12")
async def test_numbers_leave_through_exporters_alone(watched: Galaxy) -> None:
    client = Client(watched.address)
    assert [client.get(path).status for path in ("/metrics", "/api/v1/metrics", "/stats")] == [404] * 3


@pytest.mark.req("S1-35", "S1-178", "S1-179")
async def test_the_standard_variables_lead_to_a_collector(galaxy: Galaxy) -> None:
    with collecting() as collector:
        program = galaxy.start(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
            OTEL_METRIC_EXPORT_INTERVAL="100",
            OTEL_SERVICE_NAME="named-by-otel",
        )
        await galaxy.routes(await galaxy.publish(intent()), status="published")
        collector.wait_for_metric("notification.route.publish_attempts")
        program.terminate()
        assert program.wait() == 0
        assert {origin["service.name"] for origin, _ in collector.metrics} == {"named-by-otel"}
        assert {span.name for _, span in collector.spans} >= {"intent accepted", "route push"}
        assert not program.events("metrics")
        assert not program.events("span")
