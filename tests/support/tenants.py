"""Every operation of a served OpenAPI document as calls that aim at one tenant's objects."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from tests.support.client import Client, Reply

OVERRIDE = {"X-Admin-Override": "true"}
_METHODS = frozenset({"get", "put", "post", "delete", "patch"})
# What changes from answer to answer and tells nothing about anybody.
_VARYING = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b"
    r'|(?<="id": )\d+\b|(?<=_at": )\d{13}\b|(?<=/u/)[\w-]+|\bst_[\w-]{20,}'
)


class Aims(NamedTuple):
    """What of a tenant's is known outside: handles, never contents."""

    tenant: str
    notification: str
    failed: str
    route: str
    template: str
    key: str
    user: str
    address: str
    told: str = ""
    """A notification of a person's stream."""
    subscription: str = ""
    transaction: str = ""
    event: str = ""
    queue: str = ""
    suppression: str = ""
    """The number of a suppression."""
    redrive: str = ""
    """The number of a redrive."""


class Operation(NamedTuple):
    """One method on one path, as the document tells it."""

    method: str
    path: str
    told: Mapping[str, Any]
    fields: frozenset[str]
    """Names of the body's fields."""

    @property
    def guarded(self) -> bool:
        return "security" in self.told

    @property
    def role(self) -> str | None:
        found: str | None = self.told.get("x-required-role")
        return found

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Call(NamedTuple):
    """A request that can be made by anybody."""

    operation: Operation
    target: str
    body: Any

    def made(self, client: Client, headers: Mapping[str, str]) -> Reply:
        return client.call(self.operation.method, self.target, self.body, {**OVERRIDE, **headers})


def operations(document: Mapping[str, Any]) -> list[Operation]:
    return [
        Operation(method.upper(), path, told, _fields(document, told))
        for path, methods in document["paths"].items()
        for method, told in methods.items()
        if method in _METHODS
    ]


def calls(operation: Operation, aims: Aims) -> Iterator[Call]:
    """Bare, with every filter there is, and with the tenant said outright where it can be."""
    path = re.sub(r"\{(\w+)\}", lambda found: quote(_in_path(operation.path, found[1], aims), safe=""), operation.path)
    bodies = list(_bodies(operation, aims)) or [None]
    for query in _queries(operation, aims):
        target = f"{path}?{urlencode(query)}" if query else path
        for body in bodies:
            yield Call(operation, target, body)


def same_for_all(reply: Reply, *aims: Aims) -> tuple[int, str]:
    """An answer without handles, times and ids: what is left must not depend on whether the object exists."""
    text = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    found = text.decode()
    for number in {number for aim in aims for number in (aim.suppression, aim.redrive) if number}:
        # A number stands in many places that are no handle.
        found = re.sub(rf"(/suppressions/|/redrives/){number}\b", r"\1<aim>", found)
    handles = {handle for aim in aims for handle in aim if handle and handle not in {aim.suppression, aim.redrive}}
    for handle in sorted(handles, key=len, reverse=True):
        found = found.replace(handle, "<aim>").replace(quote(handle, safe=""), "<aim>")
    return reply.status, _VARYING.sub("<varies>", found)


def _fields(document: Mapping[str, Any], told: Mapping[str, Any]) -> frozenset[str]:
    schema = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return frozenset(document["components"]["schemas"].get(name, {}).get("properties", {}))


def _in_path(path: str, name: str, aims: Aims) -> str:
    if name == "id":
        ids = {
            "/redrives/": aims.redrive,
            "/templates/": aims.template,
            "/admin/": aims.failed,
            "/v1/subscriptions/": aims.subscription,
        }
        ids |= {"/ack": aims.told, "/suppressions/": aims.suppression, "/people/": aims.user}
        return next((handle for part, handle in ids.items() if part in path), aims.notification)
    # A name nobody thought of stops here: say what of a tenant's it stands for.
    return {
        "userId": aims.user,
        "user_id": aims.user,
        "code": aims.key,
        "channel": "email",
        "transaction_id": aims.transaction,
        "event_id": aims.event,
        "queue": aims.queue,
    }[name]


def _queries(operation: Operation, aims: Aims) -> list[dict[str, str]]:
    said = {
        "tenantId": aims.tenant,
        "tenant_id": aims.tenant,
        "userId": aims.user,
        "user_id": aims.user,
        "transaction_id": aims.transaction,
        "subscription_id": aims.subscription,
        "recipient": aims.address,
        "address": aims.address,
        "notificationId": aims.failed,
        "subject": aims.failed,
        "templateKey": aims.key,
        "channel": "email",
        "last_event_id": "0",
    }
    known = [one for one in operation.told.get("parameters", ()) if one["in"] == "query"]
    needed = {one["name"]: said[one["name"]] for one in known if one["required"]}
    aimed = {one["name"]: said[one["name"]] for one in known if one["name"] in said}
    untold = {name: value for name, value in aimed.items() if name not in {"tenantId", "tenant_id"}}
    found = [needed, untold, aimed]
    return [query for at, query in enumerate(found) if query not in found[:at]]


def _bodies(operation: Operation, aims: Aims) -> Iterator[Any]:
    content = operation.told.get("requestBody", {}).get("content", {}).get("application/json", {})
    for example in content.get("examples", {}).values():
        body = _aimed(example["value"], aims)
        yield body
        whose = {name: aims.user for name in ("userId", "user_id") if name in operation.fields}
        if whose:
            yield {**body, **whose}
        for name in ("tenantId", "tenant_id"):
            if name in operation.fields:
                yield {**body, **whose, name: aims.tenant}
        if "notifications" in operation.fields:
            yield {"notifications": [{**one, "userId": aims.user} for one in body["notifications"]]}


def _aimed(value: Any, aims: Aims) -> Any:
    said = {
        "notificationId": aims.failed,
        "routeId": aims.route,
        "templateKey": aims.key,
        "userId": aims.user,
        "recipient": aims.address,
        "address": aims.address,
        "templateId": aims.template,
        "user_id": aims.user,
        "notification_ids": [aims.told],
    }
    if isinstance(value, dict):
        return {name: said[name] if name in said else _aimed(inner, aims) for name, inner in value.items()}
    return [_aimed(inner, aims) for inner in value] if isinstance(value, list) else value
