"""The push worker as the author of its document runs it: settings, keys, dead letters, gauges, the template service."""

import datetime as dt
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.otlp import collecting
from tests.support.process import Program, run_carillon
from tests.support.push_stand import DOWN, FAST, Push, message, stand_fixture
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis
from tests.support.vendor import Reply
from tests.support.waiting import wait_until

push: Any = stand_fixture(start=False)
lasting: Any = stand_fixture(
    "".join(f"[policy.breaker.{name}]\nopen_seconds = {60 / FAST}\n" for name in ("fcm", "template_service")),
    name="lasting",
    start=False,
)
OUTSIDE = "invalid message: an integer is outside 64 bits (-9223372036854775808 to 9223372036854775807)"
WELCOME = {"template_code": "welcome", "variables": {"name": "Ada", "link": "https://example.org/start"}}


@pytest.mark.req("X0-1")
@pytest.mark.parametrize(
    ("settings", "unacked", "calls"),
    [
        ({"CARILLON_PUSH__PREFETCH": "6", "CARILLON_WORK__CONCURRENCY": "3"}, 6, 3),
        ({"CARILLON_PUSH__PREFETCH": "4"}, 4, 4),
        ({"CARILLON_WORK__CONCURRENCY": "5"}, 5, 5),
    ],
)
def test_prefetch_and_workers_are_two_numbers(push: Push, settings: dict[str, str], unacked: int, calls: int) -> None:
    push.start(**settings)
    gate = threading.Event()
    push.fcm.answer(*[Reply(gate=gate)] * 12)
    messages = [message() for _ in range(12)]
    push.publish(*messages)
    push.fcm.wait_for(calls)
    push.until(lambda: push.broker.ready() == 12 - unacked, what="the rest left in the queue")
    assert push.unacked() == unacked
    assert len(push.posts()) == calls
    gate.set()
    for sent in messages:
        push.until_mark(sent, "sent")
    assert [push.pushed(sent) for sent in messages] == [1] * 12


@pytest.mark.req("X0-1")
def test_without_a_word_both_are_ten(tmp_path: Path) -> None:
    names = ("DATABASE_URL", "TEMPLATE_SERVICE_URL", "RABBITMQ_URL", "REDIS_URL", "FCM_SERVER_KEY")
    urls = (
        "postgresql://nobody@127.0.0.1/none",
        "http://127.0.0.1:1",
        "amqp://127.0.0.1:1",
        "redis://127.0.0.1:1",
        "k",
    )
    shown = run_carillon(
        ["config", "show", "--blueprint", "push-worker", "--json"],
        env={"PATH": "/usr/bin:/bin", "TEMPLATE_SERVICE_TOKEN": "planted", **dict(zip(names, urls, strict=True))},
        cwd=tmp_path,
    )
    found = json.loads(shown.stdout)
    assert (found["push"]["prefetch"], found["work"]["concurrency"]) == (10, 10)
    assert "planted" not in shown.stdout


@pytest.mark.req("X0-2")
def test_the_dead_letter_that_opens_a_breaker_tells_its_own_cause_first(lasting: Push) -> None:
    lasting.start()
    lasting.fcm.answer(*[DOWN] * 20)
    first, second, third = message(), message(), message()
    reasons = []
    for sent in (first, second, third):
        lasting.publish(sent)
        reasons.append(lasting.dead(sent)["failure_reason"])
    assert reasons == [
        "FCM HTTP 500 after 3 retries",
        "FCM HTTP 500 after 0 retries; circuit breaker open: fcm",
        "circuit breaker open: fcm",
    ]
    assert lasting.until_audited(second, "failed")["metadata"]["failure_reason"] == reasons[1]
    assert [line["after"] for line in lasting.programs[-1].events("breaker_changed")] == ["open"], "told once"


@pytest.mark.req("X0-2")
@pytest.mark.parametrize(
    ("name", "cause"), [("fcm", "FCM HTTP 500"), ("template_service", "Template Service HTTP 500")]
)
def test_a_message_that_waits_for_its_retry_while_others_open_the_breaker_tells_its_own_cause(
    lasting: Push, name: str, cause: str
) -> None:
    lasting.start(CARILLON_DRILL__TIME_SCALE="2")
    vendor = lasting.fcm if name == "fcm" else lasting.template_service
    vendor.answer(DOWN)
    waiting, later = message(), message()
    lasting.publish(waiting)
    vendor.wait_for(1)
    lasting.set_breaker("open", name)
    reason = f"{cause} after 0 retries; circuit breaker open: {name}"
    assert lasting.dead(waiting)["failure_reason"] == reason
    assert lasting.until_audited(waiting, "failed")["metadata"]["failure_reason"] == reason
    # One that never called has no cause of its own.
    lasting.publish(later)
    assert lasting.dead(later)["failure_reason"] == f"circuit breaker open: {name}"
    assert len(vendor.entries) == 1


@pytest.mark.req("X0-3")
def test_breaker_keys_are_there_before_the_first_message_and_come_back(push: Push) -> None:
    push.start()
    names = [
        f"circuit:push_worker:{name}:{part}" for name in ("fcm", "template_service") for part in ("state", "failures")
    ]
    assert push.redis.mget(names) == ["closed", "0"] * 2
    # A second process, a state set by hand and a key that somebody deleted.
    push.set_breaker("open")
    push.redis.delete("circuit:push_worker:template_service:state")
    push.start()
    assert push.redis.mget(names) == ["open", "0", "closed", "0"]


@pytest.mark.req("X0-7")
def test_the_audit_log_loses_its_old_rows_and_keeps_the_young(push: Push) -> None:
    push.start()
    old, young = message(), message()
    for sent in (old, young):
        push.publish(sent)
        push.until_audited(sent, "sent")
    ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=91)
    change = "UPDATE audit_logs SET created_at = '{}' WHERE trace_id = '{}' RETURNING trace_id"
    push.rows(change.format(ago.isoformat(), old["trace_id"]))
    push.start(CARILLON_RETENTION__BATCH="1")
    push.until(lambda: not push.audit(old), what="the old row gone")
    assert push.programs[-1].wait_for("pruned")["audit_rows"] == 1
    assert len(push.audit(young)) == 1


@pytest.mark.req("X0-7")
def test_audit_rows_live_at_least_as_long_as_marks(push: Push) -> None:
    program = push.launch(CARILLON_RETENTION__AUDIT_SECONDS="1h")
    assert program.wait() != 0
    assert "retention.audit_seconds" in program.tail()


@pytest.mark.req("X0-9")
def test_both_depths_are_gauges_under_the_brokers_names(push: Push) -> None:
    with collecting() as collector:
        push.start(
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{collector.address}/v1/metrics",
            OTEL_METRIC_EXPORT_INTERVAL="200",
            CARILLON_BEAT__DEPTH_SECONDS="0.2",
        )
        gate = threading.Event()
        push.fcm.answer(*[Reply(gate=gate)] * 13)
        push.publish(b"not-json", b"not-json-2", *[message() for _ in range(13)])

        def depth(queue: str, place: str) -> float | None:
            points = collector.points("carillon.queue.depth")
            return next((value for labels, value in points if labels == {"queue": queue, "place": place}), None)

        wait_until(lambda: depth("push.queue", "main") == 3, timeout=40, what="three messages that wait")
        wait_until(lambda: depth("failed.queue", "main") == 2, timeout=40, what="two dead letters")
        assert depth("push.queue", "failed") == 2
        gate.set()
        wait_until(lambda: depth("push.queue", "main") == 0, timeout=40, what="an empty queue")


@pytest.mark.req("X0-10")
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_an_integer_outside_64_bits_is_named_in_the_dead_letter(push: Push, number: int) -> None:
    push.start()
    sent = message(variables={"name": number, "link": "x"})
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == OUTSIDE


@pytest.mark.req("X0-10")
def test_the_last_integers_of_64_bits_are_sent(push: Push) -> None:
    push.start()
    sent = message(variables={"name": -(2**63), "link": 2**63 - 1})
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert "9223372036854775807" in push.posts(sent["trace_id"])[0]["body"]
    assert "-9223372036854775808" in push.posts(sent["trace_id"])[0]["body"]


@pytest.fixture
def template_service(tmp_path: Path) -> Any:
    """Another Carillon, with tokens on."""
    folder = tmp_path / "templates"
    folder.mkdir()
    env = {"PATH": "/usr/bin:/bin", "CARILLON_HTTP__PORT": "0", "CARILLON_AUTH__REQUIRED": "true"}
    made = [
        json.loads(run_carillon(["keys", "create", name, "--json"], env=env, cwd=folder).stdout)["key"]
        for name in ("push", "push-2")
    ]
    with Program("serve", env=env, cwd=folder) as program:
        yield f"{program.wait_ready()['addresses'][0]}/template-service", made


@pytest.mark.req("X0-8")
def test_two_carillons_one_serves_templates_behind_tokens_and_one_sends(
    push: Push, template_service: tuple[str, list[str]]
) -> None:
    url, (key, second_key) = template_service
    file = push.folder / "token"
    file.write_text(f"{key}\n")
    push.start(TEMPLATE_SERVICE_URL=url, TEMPLATE_SERVICE_TOKEN_FILE=str(file))
    push.start(TEMPLATE_SERVICE_URL=url, TEMPLATE_SERVICE_TOKEN=second_key)
    messages = [message(**WELCOME) for _ in range(20)]
    push.publish(*messages)
    for sent in messages:
        push.until_mark(sent, "sent")
    assert "Ada" in push.posts(messages[0]["trace_id"])[0]["body"]


@pytest.mark.req("X0-8")
def test_a_refused_token_is_an_outage_that_ends_when_the_file_is_right(
    lasting: Push, template_service: tuple[str, list[str]]
) -> None:
    url, (key, _) = template_service
    file = lasting.folder / "token"
    file.write_text("ck_wrong")
    doctor = lasting.command("doctor", TEMPLATE_SERVICE_URL=url, TEMPLATE_SERVICE_TOKEN_FILE=str(file))
    assert (doctor.wait(), "it refuses our token; set TEMPLATE_SERVICE_TOKEN" in doctor.tail()) == (1, True)
    lasting.start(TEMPLATE_SERVICE_URL=url, TEMPLATE_SERVICE_TOKEN_FILE=str(file))
    first, second = message(**WELCOME), message(**WELCOME)
    reasons = []
    for sent in (first, second):
        lasting.publish(sent)
        reasons.append(lasting.dead(sent)["failure_reason"])
    # Retried like any outage, and counted: the fifth refusal opens the breaker, which has its alarm.
    assert reasons == [
        "Template Service HTTP 401 (it refuses our token) after 3 retries",
        "Template Service HTTP 401 (it refuses our token) after 0 retries; circuit breaker open: template_service",
    ]
    assert lasting.breaker(name="template_service") == "open"
    lasting.programs[-1].wait_for("breaker_changed", lambda line: bool(line["provider"] == "template_service"))
    file.write_text(key)
    lasting.set_breaker("half_open", "template_service")
    sent = message(**WELCOME)
    lasting.publish(sent)
    lasting.until_mark(sent, "sent")


@pytest.mark.req("X0-8")
def test_a_token_that_cannot_be_read_stops_the_start(push: Push) -> None:
    program = push.launch(TEMPLATE_SERVICE_TOKEN_FILE=str(push.folder / "nowhere"))
    assert program.wait() != 0
    assert "push.template_service_token_file: cannot be read" in program.tail()


OLD_AUDIT = """CREATE TABLE audit_logs (
    id serial PRIMARY KEY, trace_id varchar(64), user_id varchar(64), notification_type varchar(20),
    template_id varchar(100), status {status}, metadata jsonb, created_at timestamptz)"""
OLD_ROW = "INSERT INTO audit_logs (trace_id, created_at) VALUES ('of-last-year', now())"


@pytest.fixture
def strange(tmp_path: Path, rabbitmq: RabbitMQ, redis_server: Redis, postgres_dsn: str) -> Iterator[Push]:
    """A stand whose database has no tables of Carillon yet."""
    with Push(tmp_path, rabbit=rabbitmq, redis_server=redis_server, url=postgres_dsn) as stand:
        yield stand


def given(stand: Push, status: str) -> None:
    for statement in (OLD_AUDIT.format(status=status), OLD_ROW):
        stand.rows(statement)


@pytest.mark.req("X0-4", "X0-6")
def test_an_audit_log_of_before_is_adopted_and_the_doctor_says_so_first(strange: Push) -> None:
    given(strange, "varchar(20)")
    doctor = strange.command("doctor")
    assert (
        doctor.wait(),
        doctor.tail().count("the table audit_logs is there: its rows stay, and it gets audit_id"),
    ) == (0, 1)
    strange.start()
    sent = message()
    strange.publish(sent)
    strange.until_mark(sent, "sent")
    strange.until(lambda: len(strange.rows("SELECT * FROM audit_logs")) == 2, what="a row beside the old one")
    assert [row["trace_id"] for row in strange.rows("SELECT * FROM audit_logs ORDER BY id")] == [
        "of-last-year",
        sent["trace_id"],
    ]
    tables = {row["tablename"] for row in strange.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert not tables & {"payments", "job_logs", "stream_entries"}


@pytest.mark.req("X0-5", "X0-6")
def test_an_audit_log_that_does_not_fit_is_named_by_the_doctor_and_by_the_start(strange: Push) -> None:
    given(strange, "integer")
    said = "the table audit_logs is there, and its column status does not fit: it is integer, and must be text or"
    for command in (strange.command("doctor"), strange.launch()):
        assert command.wait() != 0
        assert command.tail().count(said) == 1
    assert [
        row["tablename"] for row in strange.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    ] == ["audit_logs"]
