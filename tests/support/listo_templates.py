"""Templates over HTTP, as tests of the listo blueprint write and use them."""

from typing import Any

from tests.support.client import Reply
from tests.support.listo_stand import Listo, token

ADMIN = token("root", role="admin")
ACME = token("ann", role="admin", tenant="acme")
OTHER = token("otto", role="admin", tenant="other")
USER = token("user-1", tenant="acme")
PATH = "/api/v1/templates"


def call(listo: Listo, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
    return listo.client.call(method, path, body, ADMIN if headers is None else headers)


def post(listo: Listo, key: str, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
    body = {"templateKey": key, "channel": "email", "bodyTemplate": "Hi {{name}}", **fields}
    return call(listo, "POST", PATH, {name: value for name, value in body.items() if value is not None}, headers)


def text(listo: Listo, key: str, headers: dict[str, str] | None = None, **fields: Any) -> str:
    """What a message sent now says."""
    given = {"data": {"name": "Ada"}, "headers": headers or ADMIN, **fields}
    notification_id = listo.sent(key, "email", **given)
    return str(listo.story(notification_id, given["headers"])["routes"][0]["message"]["text"])


def count(listo: Listo) -> int:
    return int(listo.rows("SELECT count(*) AS n FROM records")[0]["n"])
