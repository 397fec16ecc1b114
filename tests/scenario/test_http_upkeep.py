"""Looking after notifications over HTTP: what the composed program answers to operators."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http_client import Client, serving
from tests.support.process import Program
from tests.unit.test_web_auth import OTHER, token

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
DATA = {"name": "Ada", "link": "https://example.org/start"}
MAIL = {"templateKey": "welcome", "channel": "email", "recipient": "ada@example.org", "data": DATA}
LATER = {"scheduledFor": "2099-01-01T00:00:00Z"}
PUSH = {"templateKey": "welcome", "channel": "push", "recipient": "device-1", "data": DATA}
SECRET = "a-secret-for-the-tests-of-tokens-over-http"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Client]]:
    with serving(tmp_path_factory.mktemp("http-upkeep")) as both:
        yield both


@pytest.fixture
def client(served: tuple[Program, Client]) -> Client:
    return served[1]


def attempted(served: tuple[Program, Client], body: dict[str, Any]) -> str:
    """Send and wait until it was attempted; the id."""
    program, client = served
    notification_id: str = client.send(body).json["notificationId"]
    program.wait_for("route_attempted", lambda line: line["notification_id"] == notification_id)
    return notification_id


def times(value: Any) -> list[str]:
    """Every value under a name that says it is a time."""
    if isinstance(value, list):
        return [found for inner in value for found in times(inner)]
    if not isinstance(value, dict):
        return []
    own = [inner for name, inner in value.items() if name.endswith("At") and isinstance(inner, str)]
    return own + [found for inner in value.values() for found in times(inner)]


@pytest.mark.req("S2-112", "S2-114", "G-14")
def test_a_delivered_notification(served: tuple[Program, Client]) -> None:
    read = served[1].get(f"/api/v1/notifications/{attempted(served, MAIL)}").json
    expected = {
        *("id", "tenantId", "userId", "channel", "templateKey", "priority", "status", "locale", "providerMessageIds"),
        *(
            "providerNames",
            "attemptCount",
            "lastAttemptAt",
            "lastError",
            "createdAt",
            "sentAt",
            "deliveredAt",
            "failedAt",
        ),
    }
    assert expected <= set(read)
    assert (read["status"], read["attemptCount"], read["lastError"]) == ("delivered", 1, None)
    assert (read["priority"], read["locale"], read["providerNames"]) == ("normal", "en-US", ["sandbox"])
    assert len(read["providerMessageIds"]) == 1
    assert read["failedAt"] is None
    route = read["routes"][0]
    assert (route["routeId"], route["status"], route["maxAttempts"]) == ("email:email:ada@example.org", "delivered", 6)
    assert "attempts" not in route
    assert "message" not in route
    assert times(read)
    assert all(TIME.fullmatch(moment) for moment in times(read))


@pytest.mark.req("S2-106")
def test_attempts_and_the_rendered_message_are_shown_when_asked_for(served: tuple[Program, Client]) -> None:
    path = f"/api/v1/notifications/{attempted(served, MAIL)}"
    route = served[1].get(f"{path}?include=attempts,message").json["routes"][0]
    names = {"number", "provider", "outcome", "classification", "error", "startedAt", "durationMs", "verdict"}
    attempt = route["attempts"][0]
    assert names | {"nextTryInMs", "settled"} == set(attempt)
    assert (attempt["number"], attempt["outcome"], attempt["verdict"]) == (1, "sent", "finish")
    assert "Ada" in route["message"]["text"]
    assert "message" not in served[1].get(f"{path}?include=attempts").json["routes"][0]
    for wrong in ("include=", "include=everything", "include=attempts,", "other=1", "include=message&include=attempts"):
        assert served[1].get(f"{path}?{wrong}").code == "VALIDATION_ERROR"


@pytest.mark.req("S2-112", "S2-12")
@pytest.mark.parametrize("name", ["nothing", "01a1e11f-c0da-7ef0-9b79-29575876e8b9", "%00", "%ff", "x" * 300, "a%20b"])
def test_an_id_that_is_not_there(client: Client, name: str) -> None:
    answer = client.get(f"/api/v1/notifications/{name}")
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


@pytest.mark.req("S2-113")
def test_search(served: tuple[Program, Client]) -> None:
    client = served[1]
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    mine = {**MAIL, "userId": "seeker", "serviceOrigin": "products", "recipient": "seeker@example.org"}
    ids = [client.send(mine, traceparent=f"00-{trace}-00f067aa0ba902b7-01").json["notificationId"] for _ in range(3)]
    page = client.get("/api/v1/notifications?userId=seeker&pageSize=2").json
    assert {"items", "totalCount", "pageNumber", "pageSize", "totalPages", "nextCursor"} == set(page)
    assert [item["id"] for item in page["items"]] == [ids[2], ids[1]]
    assert (page["totalCount"], page["pageNumber"], page["pageSize"], page["totalPages"]) == (3, 1, 2, 2)
    for name in ("page", "pageNumber"):
        second = client.get(f"/api/v1/notifications?userId=seeker&pageSize=2&{name}=2").json
        assert [item["id"] for item in second["items"]] == [ids[0]]
        for path in ("dead-letters", "templates", "suppressions", "admin/audit", "admin/failed-notifications"):
            found = client.get(f"/api/v1/{path}?pageSize=2&{name}=2")
            assert (found.status, found.json.get("pageNumber")) == (200, 2), (path, name, found.json)
    assert client.get("/api/v1/notifications?page=1&pageNumber=2").status == 400
    for question in (
        "userId=seeker&channel=email",
        "serviceOrigin=products",
        "recipient=seeker%40example.org",
        f"traceId={trace}",
        "userId=seeker&templateKey=welcome",
        "userId=seeker&acceptedAfter=2020-01-01T00:00:00Z&acceptedBefore=2099-01-01T00:00:00%2B02:00",
    ):
        assert client.get(f"/api/v1/notifications?{question}").json["totalCount"] == 3, question
    for question in ("userId=seeker&channel=sms", "userId=seeker&acceptedBefore=2020-01-01T00:00:00Z", "userId=nobody"):
        assert client.get(f"/api/v1/notifications?{question}").json["totalCount"] == 0, question


@pytest.mark.req("P-1145")
def test_search_of_one_tenant(served: tuple[Program, Client]) -> None:
    client = served[1]
    sent = [client.send({**MAIL, "userId": "twin", "tenantId": name}).json["notificationId"] for name in ("a", "b")]
    for name, own in zip(("a", "b", "c"), ([sent[0]], [sent[1]], []), strict=True):
        found = client.get(f"/api/v1/notifications?userId=twin&tenantId={name}").json
        assert ([item["id"] for item in found["items"]], found["totalCount"]) == (own, len(own))
    assert client.get("/api/v1/notifications?userId=twin").json["totalCount"] == 2


@pytest.mark.req("S2-113", "S2-114")
def test_search_by_status(served: tuple[Program, Client]) -> None:
    client = served[1]
    waiting = client.send({**MAIL, **LATER, "userId": "stated"}).json["notificationId"]
    done = attempted(served, {**MAIL, "userId": "stated"})
    found = {
        word: [item["id"] for item in client.get(f"/api/v1/notifications?userId=stated&status={word}").json["items"]]
        for word in ("queued", "delivered", "failed", "skipped", "sent")
    }
    assert found == {"queued": [waiting], "delivered": [done], "failed": [], "skipped": [], "sent": []}


@pytest.mark.parametrize(
    "query",
    [
        *("page=0", "page=x", "pageSize=0", "pageSize=201", "page=1&page=2", "page=100&pageSize=200"),
        *("status=lost", "channel=fax", "unknown=1", "userId=", "userId=%00", "recipient=%ff"),
        *("acceptedAfter=yesterday", "acceptedAfter=2020-01-01", "acceptedAfter=2020-01-01T00:00:00"),
    ],
)
def test_questions_that_make_no_sense(client: Client, query: str) -> None:
    answer = client.get(f"/api/v1/notifications?{query}")
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


def test_what_was_given_up_can_be_driven_again(served: tuple[Program, Client]) -> None:
    program, client = served
    assert (
        client.call(
            "PUT", "/api/v1/sandbox/drills/sms", '{"outcome":"refused"}', content_type="application/json"
        ).status
        == 200
    )
    sms = {"templateKey": "welcome", "channel": "sms", "recipient": "+4915112345678", "data": DATA}
    notification_id = attempted(served, sms)
    read = client.get(f"/api/v1/notifications/{notification_id}").json
    assert (read["status"], read["lastError"]) == ("failed", "drill: refused")
    assert TIME.fullmatch(read["failedAt"])
    letters = client.get(f"/api/v1/dead-letters?channel=sms&notificationId={notification_id}").json
    letter = letters["items"][0]
    assert (letters["totalCount"], letter["routeId"], letter["error"]) == (
        1,
        "sms:phone:+4915112345678",
        "drill: refused",
    )
    assert client.call("DELETE", "/api/v1/sandbox/drills/sms").json == {}
    mark = program.mark()
    items = [{"notificationId": notification_id, "routeId": letter["routeId"]}]
    unknown = [{"notificationId": "nothing", "routeId": "sms:x"}]
    assert client.post("/api/v1/dead-letters/redrive", {"items": items + unknown + items}).json == {"redriven": 1}
    program.wait_for("route_attempted", lambda line: line["notification_id"] == notification_id, since=mark)
    assert client.get(f"/api/v1/notifications/{notification_id}").json["status"] == "delivered"
    assert client.post("/api/v1/dead-letters/redrive", {"items": items}).json == {"redriven": 0}
    wrong = client.post("/api/v1/dead-letters/redrive", {"items": items, "provider": "nobody"})
    assert (wrong.status, wrong.code) == (400, "VALIDATION_ERROR")


def test_what_waits_can_be_cancelled(client: Client) -> None:
    notification_id = client.send({**MAIL, **LATER}).json["notificationId"]
    path = f"/api/v1/notifications/{notification_id}"
    assert client.call("POST", f"{path}/cancel").json == {
        "notificationId": notification_id,
        "cancelled": 1,
        "tooLate": 0,
    }
    assert client.get(path).json["status"] == "skipped"
    again = client.call("POST", f"{path}/cancel")
    assert (again.status, again.code) == (409, "CONFLICT")
    assert client.call("POST", "/api/v1/notifications/nothing/cancel").code == "NOT_FOUND"


def test_the_sandbox_shows_what_would_have_left(served: tuple[Program, Client]) -> None:
    notification_id = attempted(served, PUSH)
    found = served[1].get(f"/api/v1/sandbox/messages?notificationId={notification_id}").json["items"]
    assert [(item["channel"], item["recipient"], item["outcome"]) for item in found] == [("push", "device-1", "sent")]
    assert served[1].get("/api/v1/sandbox/messages?limit=0").code == "VALIDATION_ERROR"
    assert served[1].get("/api/v1/sandbox/drills/fax").code == "NOT_FOUND"
    assert served[1].get("/api/v1/sandbox/drills/push").code == "NOT_FOUND"


def test_health(client: Client) -> None:
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/readyz").json == {"status": "ready"}
    answer = client.get("/health")
    assert (answer.status, answer.json["status"]) == (200, "healthy")
    assert TIME.fullmatch(answer.json["timestamp"])
    for name in ("ledger", "worker", "breakers"):
        assert answer.json["checks"][name]["status"] == "healthy"
        assert answer.json["checks"][name]["response_time_ms"] >= 0


def test_every_answer_is_dressed_for_the_street(client: Client) -> None:
    for answer in (
        client.get("/healthz"),
        client.send(MAIL),
        client.get("/nowhere"),
        client.get("/api/v1/notifications"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "access-control-allow-origin" not in answer.headers


def test_methods_and_hosts(client: Client) -> None:
    wrong = client.call("DELETE", "/api/v1/notifications/send")
    assert (wrong.status, wrong.code) == (405, "METHOD_NOT_ALLOWED")
    assert "POST" in wrong.headers["allow"]
    head = client.call("HEAD", "/healthz")
    assert (head.status, head.body) == (200, b"")
    assert client.get("/healthz", Host="evil.example").code == "MISDIRECTED_REQUEST"
    assert client.get("/healthz", Host=f"localhost:{client.port}").status == 200
    assert client.get("/docs").status == 200


def bearer(**claims: Any) -> str:
    return "Bearer " + token(SECRET, **{"iss": None, "aud": None, **claims})


@pytest.mark.req("S2-15", "S2-04", "S2-117")
def test_tokens_and_tenants(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("http-jwt"), JWT_SECRET_KEY=SECRET) as (_, client):
        assert client.send(MAIL).code == "UNAUTHORIZED"
        assert client.send(MAIL, Authorization="Bearer " + token(OTHER)).code == "UNAUTHORIZED"
        sent = client.send({**MAIL, "channel": "inApp", "recipient": None}, Authorization=bearer())
        assert sent.status == 202, sent.body
        mine = client.get(sent.headers["location"], Authorization=bearer()).json
        assert (mine["userId"], mine["tenantId"]) == ("ada", "acme")
        forbidden = client.send({**MAIL, "tenantId": "other"}, Authorization=bearer())
        assert (forbidden.status, forbidden.code) == (403, "FORBIDDEN")
        stranger = bearer(tenant_id="other", sub="eve", role="admin")
        assert client.get(sent.headers["location"], Authorization=stranger).code == "NOT_FOUND"
        assert client.call("POST", f"{sent.headers['location']}/cancel", Authorization=stranger).code == "NOT_FOUND"
        assert client.get("/api/v1/notifications", Authorization=stranger).json["totalCount"] == 0
        assert client.get("/api/v1/notifications", Authorization=bearer()).json["totalCount"] == 1
        nobody = bearer(tenant_id=None, sub="mallory")
        assert client.get(sent.headers["location"], Authorization=nobody).code == "NOT_FOUND"
        assert client.get("/api/v1/notifications", Authorization=nobody).json["totalCount"] == 0
        own = client.send(MAIL, Authorization=nobody)
        assert client.get(own.headers["location"], Authorization=nobody).status == 200
        everybody = bearer(tenant_id=None, role="admin")
        assert client.get("/api/v1/notifications", Authorization=everybody).json["totalCount"] == 2
        assert client.get("/api/v1/dead-letters", Authorization=bearer()).code == "FORBIDDEN"
        assert client.get("/api/v1/dead-letters", Authorization=stranger).status == 200
        assert client.get("/healthz").status == 200
        assert client.get("/openapi.json").code == "UNAUTHORIZED"


@pytest.mark.req("G-06")
def test_sigterm_ends_the_program_politely(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("http-term")) as (program, client):
        assert client.send(MAIL).status == 202
        began = time.monotonic()
        program.terminate()
        assert program.wait() == 0
        assert time.monotonic() - began < 30
        assert not program.noise
