"""Every list has a cursor, which goes on where pages end and loses nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.http_client import Client, serving
from tests.support.process import Program

DATA = {"name": "Ada", "link": "https://example.org/start"}
SMS = {"templateKey": "welcome", "channel": "sms", "recipient": "+491701234567", "data": DATA}
MANY = 5


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A ledger with five of everything that is listed."""
    with serving(tmp_path_factory.mktemp("paging")) as (program, client):
        fill(program, client)
        yield client


def fill(program: Program, client: Client) -> None:
    client.call("PUT", "/api/v1/sandbox/drills/sms", '{"outcome": "refused"}', content_type="application/json")
    for number in range(MANY):
        sent = client.send(SMS).json["notificationId"]
        program.wait_for("route_attempted", of(sent))
        address = {"channel": "email", "address": f"{number}@example.org", "reason": "asked"}
        assert client.post("/api/v1/suppressions", address).status == 200
        template = {"templateKey": f"t-{number}", "channel": "sms", "locale": "en-US", "bodyTemplate": "Hello"}
        assert client.post("/api/v1/templates", template).status == 201
        digest = {"digest": {"key": "news", "window": "1h"}, "userId": f"reader-{number}"}
        assert client.send({**SMS, "channel": "push", "recipient": f"device-{number}", **digest}).status == 202
    for number in range(MANY):
        chosen = letter(client)
        since = len(program.lines)
        body = {"reason": f"redrive {number}", "items": [chosen]}
        assert client.post("/api/v1/admin/redrive", body, x_admin_override="true").status == 200
        program.wait_for("route_attempted", of(chosen["notificationId"]), since=since)


def of(notification_id: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: bool(line["notification_id"] == notification_id)


def letter(client: Client) -> dict[str, str]:
    (one,) = client.get("/api/v1/dead-letters?pageSize=1").json["items"]
    return {"notificationId": one["notificationId"], "routeId": one["routeId"]}


def lists(client: Client) -> list[str]:
    """The path of every list in the OpenAPI document."""
    paths = client.get("/openapi.json").json["paths"]
    return [path for path, methods in paths.items() if "pageSize" in parameters(methods.get("get", {}))]


def parameters(operation: dict[str, Any]) -> set[str]:
    return {one["name"] for one in operation.get("parameters", ())}


@pytest.mark.req("P-542")
def test_every_list_takes_a_cursor(client: Client) -> None:
    paths = client.get("/openapi.json").json["paths"]
    found = lists(client)
    assert len(found) >= 8
    assert [path for path in found if "cursor" not in parameters(paths[path]["get"])] == []


@pytest.mark.req("P-542")
def test_by_cursor_one_sees_what_pages_show(client: Client) -> None:
    for path in lists(client):
        whole = client.get(f"{path}?pageSize=100").json
        assert whole["nextCursor"] is None
        assert len(whole["items"]) == whole["totalCount"] >= MANY, path
        seen: list[Any] = []
        asked = f"{path}?pageSize=2"
        while True:
            page = client.get(asked).json
            assert 1 <= len(page["items"]) <= 2, path
            seen += page["items"]
            if page["nextCursor"] is None:
                break
            asked = f"{path}?pageSize=2&cursor={page['nextCursor']}"
        assert seen == whole["items"], path


@pytest.mark.req("P-542")
def test_behind_a_cursor_nothing_is_counted(client: Client) -> None:
    first = client.get("/api/v1/notifications?pageSize=1").json
    second = client.get(f"/api/v1/notifications?pageSize=1&cursor={first['nextCursor']}").json
    assert (first["totalCount"], first["pageNumber"]) == (2 * MANY, 1)
    assert (second["totalCount"], second["totalPages"], second["pageNumber"]) == (None, None, None)


def test_what_comes_meanwhile_moves_nothing(client: Client) -> None:
    path = "/api/v1/notifications?pageSize=2&channel=inApp"
    for number in range(4):
        client.send({**SMS, "channel": "inApp", "recipient": f"inbox-{number}"})
    first = client.get(path).json
    client.send({**SMS, "channel": "inApp", "recipient": "inbox-new"})
    second = client.get(f"{path}&cursor={first['nextCursor']}").json
    ids = [one["recipient"] for one in first["items"] + second["items"]]
    assert ids == ["inbox-3", "inbox-2", "inbox-1", "inbox-0"]


@pytest.mark.req("P-542")
def test_beyond_the_last_page_the_error_names_the_cursor(client: Client) -> None:
    for path in lists(client):
        refused = client.get(f"{path}?page=101&pageSize=100")
        assert refused.status == 400, path
        assert "nextCursor" in refused.json["error"]["message"], path


def test_a_cursor_of_elsewhere_is_refused(client: Client) -> None:
    foreign = client.get("/api/v1/suppressions?pageSize=1").json["nextCursor"]
    for wrong in (foreign, "bm90IGpzb24", "W10", "WyJub3RpZmljYXRpb25zIiwtMSwiYSJd", "A"):
        refused = client.get(f"/api/v1/notifications?cursor={wrong}")
        assert refused.status == 400
        assert "not one of this list" in refused.json["error"]["message"]
    own = client.get("/api/v1/notifications?pageSize=1").json["nextCursor"]
    assert client.get(f"/api/v1/notifications?cursor={own}&page=2").status == 400
