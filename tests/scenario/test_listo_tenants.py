"""Every operation of the served document, tried by everybody on one tenant's objects: nobody else learns anything."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client, Reply
from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.process import Program
from tests.support.tenants import Aims, Operation, calls, operations, same_for_all
from tests.support.waiting import wait_until

LIMITS = "[http]\nanonymous_requests_per_second = 0\nauth_failures_per_minute = 0\n"
listo = shared_fixture(LIMITS, scale=0.001, JWT_SECRET_KEY=SECRET)

PEOPLE, SANDBOX = "/api/v1/people/{id}", "/api/v1/sandbox/messages"
USER = "user-1"
ACME_USER, ACME_ADMIN = token(USER, tenant="acme"), token("ada", role="admin", tenant="acme")
GLOBEX_USER, GLOBEX_ADMIN = token("guest", tenant="globex"), token("ada", role="admin", tenant="globex")
NOBODYS_USER, EVERYBODYS_ADMIN = token("guest"), token("root", role="admin")
STRANGERS = {"globex user": GLOBEX_USER, "globex admin": GLOBEX_ADMIN, "user without a tenant": NOBODYS_USER}


class Planted:
    """One tenant's objects, each with the canary in its contents, and handles of the same form that name nothing."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.canary = f"canary{uuid.uuid4().hex[:12]}"
        mark, other = uuid.uuid4().hex[:8], uuid.uuid4().hex[:8]
        self.key = f"secret_{mark}"
        self.device = f"device-{mark}"
        self.document: dict[str, Any] = client.get("/openapi.json", EVERYBODYS_ADMIN).body
        template = self._template()
        told = self._in_inbox()
        waiting = self._sent(self.device, scheduledFor="2100-01-01T00:00:00Z")
        failed, route = self._failed(self.device[-7:])
        suppression = self._people()
        self.aims = Aims(
            "acme", waiting, failed, route, template, self.key, USER, self.device, told, suppression=suppression
        )._replace(redrive=self._redrive())
        gone = [str(uuid.uuid4()) for _ in range(4)]
        named = (
            route.replace(self.device, f"device-{other}"),
            gone[2],
            f"secret_{other}",
            f"user-{other}",
            f"device-{other}",
            gone[3],
        )
        self.phantoms = Aims("initech", gone[0], gone[1], *named, suppression="987654321", redrive="987654321")

    def operations(self) -> list[Operation]:
        return operations(self.document)

    def everything(self) -> dict[str, Any]:
        """What the tenant's own administrator sees of all of it."""
        found = {}
        for operation in self.operations():
            if operation.method == "GET" and operation.guarded and "/sandbox/" not in operation.path:
                for call in calls(operation, self.aims):
                    reply = call.made(self.client, ACME_ADMIN)
                    # A refusal carries its own time and id; that it is one is all there is to compare.
                    found[f"{operation} {call.target}"] = reply.body if reply.status < 300 else reply.status
        return found

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str] = ACME_ADMIN) -> Any:
        reply = self.client.call(method, path, body, {"X-Admin-Override": "true", **headers})
        assert reply.status < 300, reply
        return reply.body

    def _template(self) -> str:
        body = {"templateKey": self.key, "channel": "push", "locale": "en-US", "subjectTemplate": self.canary}
        made = self._call("POST", "/api/v1/templates", {**body, "bodyTemplate": f"{self.canary} {{{{name}}}}"})
        return str(made["id"])

    def _in_inbox(self) -> str:
        """A message in the person's inbox, which holds the canary."""
        body = {"templateKey": self.key, "channel": "inApp", "locale": "en-US", "bodyTemplate": self.canary}
        self._call("POST", "/api/v1/templates", {**body, "subjectTemplate": self.canary})
        sent = {"templateKey": self.key, "channel": "inApp", "userId": USER}
        told = str(self._call("POST", "/api/v1/notifications/send", sent, ACME_USER)["notificationId"])
        path = f"/notifications/{USER}"

        def there() -> bool:
            found = self.client.get(path, ACME_USER).body["notifications"]
            return told in {one["notification_id"] for one in found}

        wait_until(there, timeout=60, what=path)
        return told

    def _sent(self, address: str, **more: Any) -> str:
        body = {
            "templateKey": self.key,
            "channel": "push",
            "recipient": address,
            "userId": USER,
            "data": {"name": self.canary, "link": "https://example.org"},
            **more,
        }
        body["metadata"] = {"note": self.canary, **more.get("metadata", {})}
        return str(self._call("POST", "/api/v1/notifications/send", body, ACME_USER)["notificationId"])

    def _failed(self, address: str) -> tuple[str, str]:
        """Too short for a device, and refused by the sandbox where there is one."""
        sent = self._sent(address, metadata={"sandbox": {"outcome": "refused", "times": 9}})
        path = f"/api/v1/notifications/{sent}"
        wait_until(lambda: self.client.get(path, ACME_USER).body["status"] == "failed", timeout=60, what=path)
        # A vendor that refuses a device for good has suppressed it, and a retry waits until that is lifted.
        for one in self._call("GET", f"/api/v1/suppressions?address={address}", None)["items"]:
            self._call("DELETE", f"/api/v1/suppressions/{one['id']}", None)
        return sent, str(self.client.get(path, ACME_USER).body["routes"][0]["routeId"])

    def _people(self) -> str:
        """The number of a suppression."""
        contacts = {"contacts": {"email": f"{self.canary}@acme.example"}}
        self._call("PUT", f"/api/v1/preferences/user/{USER}", contacts)
        body = {"channel": "email", "address": f"{self.device}@acme.example", "reason": self.canary}
        suppression = self._call("POST", "/api/v1/suppressions", body)
        retried, _ = self._failed("a" + self.device[-7:])
        self._call("POST", f"/api/v1/admin/notifications/{retried}/retry", {"reason": self.canary})
        path = f"/api/v1/notifications/{retried}"
        wait_until(lambda: self.client.get(path, ACME_USER).body["status"] != "queued", timeout=60, what=path)
        return str(suppression["id"])

    def _redrive(self) -> str:
        """The number of a redrive that is over."""
        failed, route = self._failed("b" + self.device[-7:])
        body = {"reason": self.canary, "items": [{"notificationId": failed, "routeId": route}]}
        done = self._call("POST", "/api/v1/admin/redrive", body)
        path = f"/api/v1/notifications/{failed}"
        wait_until(lambda: self.client.get(path, ACME_USER).body["status"] != "queued", timeout=60, what=path)
        return str(done["actionId"])


@pytest.fixture
def planted(listo: Listo) -> Planted:
    return Planted(listo.client)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Planted]:
    (tmp_path / "carillon.toml").write_text(f'extends = "local"\n{LIMITS}')
    environment = {
        "CARILLON_HTTP__PORT": "0",
        "JWT_SECRET_KEY": SECRET,
        "DATABASE_URL": f"sqlite:///{tmp_path}/local.db",
        "CARILLON_DRILL__TIME_SCALE": "0.001",
    }
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=tmp_path) as program:
        program.wait_ready()
        yield Planted(Client.of(program))


def shown(reply: Reply) -> str:
    return f"{reply.headers} {reply.body!r}"


def told(reply: Reply) -> str:
    """The code of a problem; nothing for an answer."""
    problem = isinstance(reply.body, dict) and "error" in reply.body
    return str(reply.body["error"]["code"]) if problem else ""


def check_nobody_is_let_in(planted: Planted) -> None:
    bodies = set()
    for operation in planted.operations():
        for call in calls(operation, planted.aims):
            reply = call.made(planted.client, {})
            assert planted.canary not in shown(reply), operation
            assert reply.status < 500, operation
            if operation.guarded:
                assert reply.status == 401, operation
                error = reply.body["error"]
                bodies.add((error["code"], error["message"], json.dumps(error["details"])))
    assert len(bodies) == 1


def check_roles(planted: Planted) -> None:
    closed = [operation for operation in planted.operations() if operation.role == "admin"]
    assert closed
    for operation in closed:
        for call in calls(operation, planted.aims):
            for headers in (ACME_USER, GLOBEX_USER, NOBODYS_USER):
                reply = call.made(planted.client, headers)
                assert (reply.status, told(reply)) == (403, "FORBIDDEN"), operation


def check_strangers_learn_nothing(planted: Planted, strangers: dict[str, dict[str, str]] = STRANGERS) -> None:
    """An answer about the tenant's objects is the answer about objects that do not exist, and changes nothing."""
    before = planted.everything()
    for name, headers in strangers.items():
        for operation in planted.operations():
            if not operation.guarded:
                continue
            for aimed, missed in zip(calls(operation, planted.aims), calls(operation, planted.phantoms), strict=True):
                miss, hit = missed.made(planted.client, headers), aimed.made(planted.client, headers)
                where = f"{operation} {aimed.target} {aimed.body} by {name}"
                assert planted.canary not in shown(hit), where
                both = (planted.aims, planted.phantoms)
                assert same_for_all(hit, *both) == same_for_all(miss, *both), where
                # A person's id is a name that every tenant may use: the answer is that of a person nobody wrote to.
                if "{id}" in operation.path and not operation.path.startswith(PEOPLE):
                    assert hit.status in {403, 404}, where
    assert planted.everything() == before


def check_owners_see_it(planted: Planted, wanted: set[str]) -> None:
    """The negative control: the canary is there to be seen, by those who may."""
    for headers in (ACME_ADMIN, EVERYBODYS_ADMIN):
        seen = {
            operation.path
            for operation in planted.operations()
            if operation.method == "GET"
            for call in calls(operation, planted.aims)
            if planted.canary in shown(call.made(planted.client, headers))
        }
        assert wanted <= seen | ({SANDBOX} if headers is ACME_ADMIN else set())


CONTENTS = {
    "/api/v1/notifications",
    "/api/v1/notifications/{id}",
    "/api/v1/templates",
    "/api/v1/templates/{id}",
    "/api/v1/preferences/user/{userId}",
    f"{PEOPLE}/export",
    "/api/v1/suppressions",
    "/api/v1/admin/audit",
}


@pytest.mark.req("S2-117", "S2-126")
def test_without_a_token_everything_is_401(planted: Planted) -> None:
    check_nobody_is_let_in(planted)


@pytest.mark.req("S2-126")
def test_users_are_no_administrators(planted: Planted) -> None:
    check_roles(planted)


@pytest.mark.req("S2-117")
def test_another_tenant_learns_nothing_and_changes_nothing(planted: Planted) -> None:
    check_strangers_learn_nothing(planted)


def test_a_leak_would_be_seen(planted: Planted) -> None:
    with pytest.raises(AssertionError):
        check_strangers_learn_nothing(planted, {"no stranger": ACME_USER})


@pytest.mark.req("S2-117")
def test_the_tenant_itself_sees_it(planted: Planted) -> None:
    check_owners_see_it(planted, CONTENTS)


@pytest.mark.req("S2-117", "S2-126")
def test_the_same_holds_for_local(local: Planted) -> None:
    check_nobody_is_let_in(local)
    check_roles(local)
    check_strangers_learn_nothing(local)
    check_owners_see_it(local, CONTENTS | {SANDBOX})


@pytest.mark.req("S2-117")
def test_a_notification_is_not_found_by_another_tenant(planted: Planted) -> None:
    path = f"/api/v1/notifications/{planted.aims.notification}"
    assert planted.client.get(path, ACME_USER).status == 200
    for headers in STRANGERS.values():
        reply = planted.client.get(path, headers)
        assert (reply.status, told(reply)) == (404, "NOT_FOUND")


@pytest.mark.req("S2-117")
def test_the_same_name_in_another_tenant_is_another_user(planted: Planted) -> None:
    for path in ("/api/v1/preferences", f"/api/v1/preferences/user/{USER}"):
        assert planted.canary in shown(planted.client.get(path, ACME_USER))
        for headers in (token(USER, tenant="globex"), token(USER)):
            reply = planted.client.get(path, headers)
            assert reply.status == 200
            assert planted.canary not in shown(reply)


@pytest.mark.req("S2-126")
def test_a_retry_by_hand_takes_a_token_a_role_and_the_override(planted: Planted) -> None:
    path, body = f"/api/v1/admin/notifications/{planted.aims.failed}/retry", {"reason": "asked for"}
    override = {"X-Admin-Override": "true"}
    assert planted.client.call("POST", path, body, override).status == 401
    assert planted.client.call("POST", path, body, {**override, "Authorization": "Bearer nonsense"}).status == 401
    assert planted.client.call("POST", path, body, {**override, **ACME_USER}).status == 403
    for missing in ({}, {"X-Admin-Override": "false"}, {"X-Admin-Override": ""}):
        reply = planted.client.call("POST", path, body, {**missing, **ACME_ADMIN})
        assert (reply.status, told(reply)) == (403, "ADMIN_OVERRIDE_REQUIRED")
    assert planted.client.call("POST", path, body, {**override, **GLOBEX_ADMIN}).status == 404
    assert planted.client.call("POST", path, body, {**override, **ACME_ADMIN}).status == 200
