"""What operators of the billing services see and do over HTTP: depths, job logs, requeue, numbers."""

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import jwt
import pytest

from tests.support.billing_stand import QUEUES, Billing, stand_fixture
from tests.support.client import Reply as Answer
from tests.support.process import Program
from tests.support.queue_stand import envelope
from tests.support.servers import Redis
from tests.support.vendor import Reply

UPDATE, PLAN = "q:pay:subscription_update", "q:sub:plan_change"
DOWN = Reply(503, body={"error": "down"})
KEY = "an operator's secret of thirty-two bytes"
# Failures are final at once: what is looked at here is what an operator does about them.
ONCE: dict[str, Any] = {
    "CARILLON_QUEUE__Q_PAY_SUBSCRIPTION_UPDATE__MAX_RETRIES": "0",
    "CARILLON_QUEUE__Q_SUB_PLAN_CHANGE__MAX_RETRIES": "7",
}

shared: Any = stand_fixture(scope="module", name="shared", **ONCE)


@pytest.fixture
def billing(shared: Billing) -> Iterator[Billing]:
    if not shared.programs:
        shared.start_payment()
    yield shared
    shared.subscription_stub.default = Reply()
    shared.redis.delete(PLAN, f"{PLAN}:processing", f"{PLAN}:delayed", f"{PLAN}:failed", f"{UPDATE}:failed")


def update(**changes: Any) -> dict[str, Any]:
    event_id = f"payment_{uuid4()}_1"
    return envelope(payload={"event_id": event_id}, idempotency_key=event_id, **changes)


def queue(billing: Billing, name: str) -> dict[str, Any]:
    answer = billing.client().get("/ops/queues")
    assert answer.status == 200, answer
    (found,) = [each for each in answer.body["queues"] if each["queue"] == name]
    return dict(found)


def fail(billing: Billing, number: int) -> list[dict[str, Any]]:
    """So many failed messages, the oldest first."""
    billing.subscription_stub.default = DOWN
    messages = [update(correlation_id=f"sub-{at}") for at in range(number)]
    for message in messages:
        billing.push(UPDATE, message)
        billing.logged("failed", message_id=message["id"])
    return messages


def requeue(billing: Billing, body: object = None, name: str = UPDATE) -> Answer:
    return billing.client().call("POST", f"/ops/queues/{name}/failed/requeue", body)


def _requeued(billing: Billing, body: object) -> bool:
    return bool(requeue(billing, body).body["requeued"] == 1)


@pytest.mark.req("S3-92", "S3-93", "S3-96")
def test_every_queue_is_shown_with_what_waits_where(billing: Billing) -> None:
    answer = billing.client().get("/ops/queues")
    assert [each["queue"] for each in answer.body["queues"]] == sorted(QUEUES)
    made = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 100))
    billing.push(PLAN, envelope(created_at=made))
    billing.push(PLAN, envelope())
    billing.redis.lpush(f"{PLAN}:processing", "a", "b", "c")
    billing.redis.zadd(f"{PLAN}:delayed", {"d": time.time() + 1000})
    billing.redis.lpush(f"{PLAN}:failed", "e", "f", "g", "h")
    found = queue(billing, PLAN)
    assert [found[place] for place in ("main", "processing", "delayed", "failed")] == [2, 3, 1, 4]
    assert 100 <= found["oldest_seconds"] < 400
    # The other service's: nobody here works it off.
    assert found["handler"] is None
    assert found["policy"]["max_retries"] == 7


@pytest.mark.req("S3-92")
def test_what_ran_here_is_counted_as_flower_would(billing: Billing) -> None:
    before = queue(billing, UPDATE)["runs"]
    message = update()
    billing.push(UPDATE, message)
    billing.logged("success", message_id=message["id"])
    fail(billing, 2)
    found = queue(billing, UPDATE)
    assert found["handler"] == "process_webhook_processing"
    assert [found["runs"][what] - before[what] for what in ("success", "retry", "failed", "swept")] == [1, 0, 2, 0]
    assert found["runs"]["average_ms"] > 0
    assert (found["oldest_seconds"], found["policy"]["max_retries"]) == (None, 0)


@pytest.mark.req("S3-93")
def test_job_logs_are_found_by_each_of_their_names(billing: Billing) -> None:
    one, other = update(correlation_id=f"sub-{uuid4()}"), update(correlation_id=f"sub-{uuid4()}")
    billing.push(UPDATE, one)
    billing.logged("success", message_id=one["id"])
    billing.subscription_stub.default = DOWN
    billing.push(UPDATE, other)
    billing.logged("failed", message_id=other["id"])

    def look(query: str) -> list[dict[str, Any]]:
        answer = billing.client().get(f"/ops/job-logs?{query}")
        assert answer.status == 200, answer
        return list(answer.body["job_logs"])

    assert [row["message_id"] for row in look("limit=2")] == [other["id"], one["id"]]
    (row,) = look(f"correlation_id={one['correlation_id']}")
    assert (row["queue"], row["status"], row["attempts"], row["action"]) == (UPDATE, "success", 0, "renewal")
    assert (row["service"], row["idempotency_key"]) == ("payment", one["idempotency_key"])
    assert row["updated_at"] >= row["created_at"]
    assert row["created_at"].endswith("Z")
    (row,) = look(f"idempotency_key={other['idempotency_key']}&queue={UPDATE}&status=failed")
    assert "503" in row["last_error"]
    assert look(f"queue={PLAN}") == look(f"correlation_id={one['correlation_id']}&status=retry") == []


@pytest.mark.req("S3-93")
@pytest.mark.parametrize("query", ["status=lost", "limit=0", "limit=501", "limit=x", "queu=a", "queue="])
def test_a_question_that_makes_no_sense_is_refused(billing: Billing, query: str) -> None:
    answer = billing.client().get(f"/ops/job-logs?{query}")
    assert (answer.status, answer.body["error"]["code"]) == (400, "VALIDATION_ERROR")


@pytest.mark.req("S3-93")
def test_failed_messages_get_another_life(billing: Billing) -> None:
    first, second, third = fail(billing, 3)
    seen = billing.client().get(f"/ops/queues/{UPDATE}/failed?limit=2").body
    assert (seen["total"], [each["message_id"] for each in seen["messages"]]) == (3, [third["id"], second["id"]])
    assert seen["messages"][0]["payload"] == third["payload"]
    counted = requeue(billing, {"dry_run": True}).body
    assert counted == {"queue": UPDATE, "found": 3, "requeued": 0, "dry_run": True}
    assert requeue(billing, {"ids": [second["id"], "another"], "dry_run": True}).body["found"] == 1
    billing.subscription_stub.default = Reply()
    assert requeue(billing, {"ids": [second["id"], "another"]}).body["requeued"] == 1
    billing.logged("success", message_id=second["id"])
    assert requeue(billing, {"limit": 1, "reason": "the other side is back"}).body["requeued"] == 1
    billing.logged("success", message_id=first["id"])
    # No body at all means all that are left.
    assert requeue(billing).body == {"queue": UPDATE, "found": 1, "requeued": 1, "dry_run": False}
    billing.logged("success", message_id=third["id"])
    assert requeue(billing).body["found"] == 0
    told = [row for row in billing.rows("SELECT * FROM admin_actions") if row["action"] == "requeue"]
    assert [row["subject"] for row in told] == [UPDATE] * 3
    assert told[1]["reason"] == "the other side is back"


@pytest.mark.req("S3-93")
def test_who_gave_them_another_life_is_told(billing: Billing) -> None:
    def told(query: str = "") -> Any:
        return billing.client().get(f"/ops/audit?queue={UPDATE}{query}").body

    before = told()["total"]
    first, _, _ = fail(billing, 3)
    assert requeue(billing, {"dry_run": True}).body["found"] == 3
    assert told()["total"] == before, "counting does nothing"
    assert requeue(billing, {"ids": [first["id"]], "reason": "asked for"}).body["requeued"] == 1
    assert requeue(billing, {"limit": 1}).body["requeued"] == 1
    newest = told("&limit=2")
    assert (newest["total"], len(newest["actions"])) == (before + 2, 2)
    oldest, chosen = newest["actions"]
    assert (chosen["actor"], chosen["action"], chosen["queue"]) == ("anonymous", "requeue", UPDATE)
    assert (chosen["reason"], chosen["chosen"], chosen["limit"], chosen["found"]) == ("asked for", 1, None, 1)
    assert (oldest["reason"], oldest["chosen"], oldest["limit"]) == ("requeued over HTTP", None, 1)
    assert oldest["at"] >= chosen["at"]
    assert billing.client().get("/ops/audit?queue=q:pay:refund_initiation").body == {
        "actions": [],
        "total": 0,
        "next_cursor": None,
    }
    assert billing.client().get("/ops/audit?limit=501").status == 400


DEEP = 420
"""More pages than a list that counts pages has."""


def walked(billing: Billing, path: str, items: str, size: int) -> list[Any]:
    """Every item of a list, page by page."""
    seen: list[Any] = []
    more = ""
    while True:
        answer = billing.client().get(f"{path}{'&' if '?' in path else '?'}limit={size}{more}")
        assert answer.status == 200, answer
        seen += answer.body[items]
        if answer.body["next_cursor"] is None:
            return seen
        assert len(answer.body[items]) == size
        more = f"&cursor={answer.body['next_cursor']}"


@pytest.mark.req("P-613")
def test_failed_messages_are_paged_as_deep_as_they_go(billing: Billing) -> None:
    name, path = f"{PLAN}:failed", f"/ops/queues/{PLAN}/failed"
    for number in range(DEEP):
        billing.redis.lpush(name, json.dumps(envelope(id=f"m{number:03}")))
    newest = [f"m{number:03}" for number in reversed(range(DEEP))]
    for size in (1, 100):
        assert [one["message_id"] for one in walked(billing, path, "messages", size)] == newest
    first = billing.client().get(f"{path}?limit=2").body
    assert (first["total"], len(first["messages"])) == (DEEP, 2)
    billing.redis.lpush(name, json.dumps(envelope(id="later")))
    billing.redis.rpop(name, 5)
    after = f"{path}?limit=2&cursor={first['next_cursor']}"
    assert [one["message_id"] for one in billing.client().get(after).body["messages"]] == newest[2:4]
    billing.redis.delete(name)
    assert billing.client().get(after).body["messages"] == []


@pytest.mark.req("P-613")
def test_job_logs_and_actions_are_paged_by_cursor(billing: Billing) -> None:
    messages = [update(correlation_id="paged") for _ in range(DEEP)]
    for message in messages:
        billing.push(UPDATE, message)
    path = "/ops/job-logs?correlation_id=paged&status=success"
    billing.until(lambda: len(walked(billing, path, "job_logs", 500)) == DEEP, what="all of them logged")
    whole = walked(billing, path, "job_logs", 500)
    assert walked(billing, path, "job_logs", 1) == whole
    assert {row["message_id"] for row in whole} == {message["id"] for message in messages}
    for message in fail(billing, 3):
        body = {"ids": [message["id"]], "reason": message["id"]}
        # The worker logs a failure before the message is in the failed list.
        billing.until(partial(_requeued, billing, body), what="the message to be requeued")
    actions = walked(billing, f"/ops/audit?queue={UPDATE}", "actions", 500)
    assert walked(billing, f"/ops/audit?queue={UPDATE}", "actions", 1) == actions
    assert len(actions) >= 3


@pytest.mark.req("P-613")
def test_a_cursor_of_elsewhere_is_refused_in_the_same_words(billing: Billing) -> None:
    for number in range(2):
        billing.redis.lpush(f"{PLAN}:failed", json.dumps(envelope(id=f"m{number}")))
    foreign = billing.client().get(f"/ops/queues/{PLAN}/failed?limit=1").body["next_cursor"]
    for path in ("/ops/job-logs", "/ops/audit", f"/ops/queues/{PLAN}/failed"):
        for wrong in (foreign, "bm90IGpzb24", "A"):
            if wrong == foreign and path.endswith("failed"):
                continue
            answer = billing.client().get(f"{path}?cursor={wrong}")
            assert (answer.status, answer.body["error"]["code"]) == (400, "VALIDATION_ERROR"), path
            assert "this cursor is not one of this list" in answer.body["error"]["message"]


@pytest.mark.req("S3-93", "S3-14")
def test_what_is_no_message_is_shown_and_fails_again(billing: Billing) -> None:
    billing.push(UPDATE, "no message at all")
    billing.until(lambda: billing.redis.llen(f"{UPDATE}:failed") == 1, what="one failed")
    (seen,) = billing.client().get(f"/ops/queues/{UPDATE}/failed").body["messages"]
    assert (seen["text"], seen["payload"]) == ("no message at all", None)
    assert requeue(billing).body["requeued"] == 1
    billing.until(lambda: billing.redis.lrange(f"{UPDATE}:failed", 0, -1) == ["no message at all"], what="failed again")


@pytest.mark.req("S3-93")
def test_requeue_refuses_what_it_does_not_understand_and_moves_nothing(billing: Billing) -> None:
    fail(billing, 1)
    senseless: list[object] = [b"{", b"[]", {"ids": []}, {"ids": "a"}, {"limit": 0}, {"id": "a"}, {"dry_run": "yes"}]
    for body in senseless:
        answer = requeue(billing, body)
        assert (answer.status, answer.body["error"]["code"]) == (400, "VALIDATION_ERROR"), body
    answer = requeue(billing, name="q:pay:refunds")
    assert (answer.status, answer.body["error"]["code"]) == (404, "NOT_FOUND")
    assert "/ops/queues" in answer.body["detail"]
    assert requeue(billing, name=f"{UPDATE}:failed").status == 404
    assert billing.redis.llen(f"{UPDATE}:failed") == 1


@pytest.mark.req("S3-93")
def test_a_redis_that_does_not_answer_is_said_so(billing: Billing, redis_server: Redis) -> None:
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        answer = requeue(billing)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    assert (answer.status, answer.body["error"]["code"]) == (503, "UNAVAILABLE")
    assert "retry-after" in answer.headers
    billing.until(lambda: billing.client().get("/ops/queues").status == 200, what="Redis again", timeout=60)


@pytest.mark.req("S3-91")
def test_without_redis_the_start_says_so_in_one_line_and_waits(billing: Billing) -> None:
    server = Redis()
    program = billing.launch(REDIS_URL=server.url())
    said = program.wait_for("trouble", lambda line: bool(line["where"] == "start"))
    assert said["error"].startswith("redis.url: ")
    assert not program.noise
    assert not program.events("ready")
    with server:
        program.wait_ready()
        program.terminate()
        assert program.wait(60) == 0
    assert {line["where"] for line in program.events("trouble")} == {"start"}
    billing.programs.remove(program)


@pytest.fixture(scope="module")
def guarded(shared: Billing) -> Program:
    return shared.start_payment(JWT_SECRET_KEY=KEY, JWT_ISSUER="ops", JWT_AUDIENCE="carillon")


def bearer(**claims: Any) -> dict[str, str]:
    now = int(time.time())
    said = {"sub": "ada", "iss": "ops", "aud": "carillon", "iat": now, "exp": now + 600, **claims}
    return {"Authorization": f"Bearer {jwt.encode(said, KEY, algorithm='HS256')}"}


@pytest.mark.req("S3-93")
def test_only_administrators_of_every_tenant_may_look(billing: Billing, guarded: Program) -> None:
    client = billing.client(guarded)
    for method, path in (
        ("GET", "/ops/queues"),
        ("GET", "/ops/job-logs"),
        ("GET", f"/ops/queues/{UPDATE}/failed"),
        ("POST", f"/ops/queues/{UPDATE}/failed/requeue"),
    ):
        said = [
            client.call(method, path, headers=headers).status
            for headers in ({}, bearer(role="user"), bearer(role="admin", tenant_id="acme"), bearer(role="admin"))
        ]
        assert said == [401, 403, 403, 200], path


@pytest.mark.req("S3-94")
def test_metrics_are_exported_to_a_collector(billing: Billing) -> None:
    program = billing.start_payment(
        CARILLON_METRICS__STDOUT="true", CARILLON_BEAT__DEPTH_SECONDS="0.1", OTEL_METRIC_EXPORT_INTERVAL="200"
    )
    billing.push(PLAN, envelope())
    billing.subscription_stub.default = DOWN

    def points(name: str) -> list[dict[str, Any]]:
        """Of the newest line that has this metric."""
        for line in reversed(program.events("metrics")):
            scopes = [scope for resource in line["resource_metrics"] for scope in resource["scope_metrics"]]
            found = [metric for scope in scopes for metric in scope["metrics"] if metric["name"] == name]
            if found:
                return list(found[0]["data"]["data_points"])
        return []

    def counted(name: str, **attributes: str) -> list[dict[str, Any]]:
        return [each for each in points(name) if attributes.items() <= each["attributes"].items()]

    def until_counted(name: str, **attributes: str) -> dict[str, Any]:
        def more() -> bool:
            # Several processes work here: until this one had its turn, it is given more to do, as fast as they work.
            if billing.redis.llen(UPDATE) == 0:
                billing.push(UPDATE, update(max_attempts=1))
            return bool(counted(name, **attributes))

        billing.until(more, what=f"{name} {attributes}", timeout=60)
        return counted(name, **attributes)[-1]

    assert until_counted("carillon.webhook.duration", kind="queued", result="failed")["count"] >= 1
    assert until_counted("carillon.queue.retry.delay", queue=UPDATE)["count"] >= 1
    assert until_counted("carillon.queue.retry.latency", queue=UPDATE)["count"] >= 1
    assert until_counted("carillon.queue.runs", queue=UPDATE, result="failed")["value"] >= 1
    assert 0 < until_counted("carillon.queue.failure_rate", queue=UPDATE)["value"] <= 1
    assert until_counted("carillon.queue.depth", queue=UPDATE, place="failed")["value"] >= 0
    assert until_counted("carillon.queue.oldest_age", queue=UPDATE)["value"] >= 0
    assert until_counted("carillon.queue.run.duration", queue=UPDATE)["count"] >= 1
    assert "payment_" not in json.dumps(program.events("metrics"))
