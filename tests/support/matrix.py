"""Who may see what: every operation of a served document, called by everybody, judged by its declaration alone."""

import asyncio
import functools
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import jwt

from carillon.web import About, Callers
from carillon.web.about import RequestPlace
from tests.support.client import Client, Reply
from tests.support.declared import declared
from tests.support.tenants import OVERRIDE, Aims, Call, Operation, calls, operations

SECRET = "the-matrix-has-a-secret-of-forty-characters"
ADA, BOB, ACME, GLOBEX, ORDERS = "ada", "bob", "acme", "globex", "orders"
ABOUT: Mapping[str, About] = {one.name: one.about for one in declared()}
_NOT_TOLD = frozenset({"api_keys", "schema_migrations", "schema_parts", "breakers", "replicas", "presence"})
"""Tables that change by themselves and hold nothing of a person."""


_OWNERS = 4
_RENEWED = 300
"""A token is good for 900 seconds, and is made anew after so many."""


_LISTENS = 0.5
"""Seconds without a word after which a stream has told what it has to tell."""


class Who(NamedTuple):
    """A caller; the four kinds are those of docs/explanation/security.md."""

    name: str
    kind: str
    tenant: str | None = None
    user: str | None = None
    service: str | None = None
    key: str | None = None
    """An API key; otherwise a token is made."""

    @property
    def administers(self) -> bool:
        return self.kind in {"administrator", "operator"}

    def headers(self) -> dict[str, str]:
        if self.kind == "nobody":
            return {}
        if self.key is not None:
            return {"X-API-Key": self.key}
        return {"Authorization": f"Bearer {_token(self, int(time.time()) // _RENEWED)}"}


@functools.cache
def _token(who: Who, period: int) -> str:
    """Made once for each caller in each period: a matrix shows it a hundred times."""
    role = {"person": "user", "service": "service"}.get(who.kind, "admin")
    now = period * _RENEWED
    claims = {"sub": who.user or who.service or "root", "role": role, "iat": now, "exp": now + 900}
    claims |= {} if who.tenant is None else {"tenant_id": who.tenant}
    return jwt.encode(claims, SECRET, algorithm="HS256")


def everybody(orders_key: str | None) -> list[Who]:
    """Those to whom Ada's things belong come last, so that the others find everything as it was planted."""
    return [
        Who("nobody", "nobody"),
        Who("a person of the same tenant", "person", ACME, BOB),
        Who("the person of the same name in another tenant", "person", GLOBEX, ADA),
        Who("the person of the same name without a tenant", "person", None, ADA),
        Who("another service of the tenant", "service", ACME, service="invoices"),
        Who("the service of the same name in another tenant", "service", GLOBEX, service=ORDERS),
        Who("an administrator of another tenant", "administrator", GLOBEX),
        Who("the service that sent", "service", ACME, service=ORDERS, key=orders_key),
        Who("the person", "person", ACME, ADA),
        Who("an administrator of the tenant", "administrator", ACME),
        Who("an operator", "operator"),
    ]


class Owner(NamedTuple):
    """Somebody with planted things, and the marks by which these are recognised: texts, addresses and ids."""

    tenant: str | None
    user: str | None
    """None for what belongs to the tenant as a whole."""
    marks: tuple[str, ...]
    sent_by: str | None = None


class Violation(NamedTuple):
    """A caller saw, did or was told what the declaration does not allow."""

    who: str
    call: str
    what: str


class Planted(NamedTuple):
    """A listener, and what everybody's things are there."""

    client: Client
    url: str
    aims: Aims
    owners: tuple[Owner, ...]
    everybody: list[Who]
    shown: Mapping[str, frozenset[str]]
    """By the kind of those who may: the operations that must show Ada's things to them."""

    @property
    def ada(self) -> tuple[str, ...]:
        return tuple(mark for one in self.owners if (one.tenant, one.user) == (ACME, ADA) for mark in one.marks)

    @property
    def of_the_tenant(self) -> list[str]:
        return [mark for one in self.owners if one.tenant == self.aims.tenant for mark in one.marks]

    @property
    def strangers(self) -> list[Who]:
        """Everybody to whom nothing of Ada's belongs."""
        return self.everybody[:-_OWNERS]

    @property
    def owners_themselves(self) -> list[Who]:
        return self.everybody[-_OWNERS:]

    def operations(self) -> list[Operation]:
        return operations(self.client.get("/openapi.json", self.everybody[-1].headers()).body)


def known_calls(operation: Operation, aims: Aims) -> list[Call]:
    """All calls of one operation; an operation that nobody declared or that cannot be aimed fails here."""
    name = operation.told["operationId"]
    assert name in ABOUT, f"{operation} ({name}) is served and not declared in tests/support/declared.py"
    try:
        found = list(calls(operation, aims))
    except KeyError as error:
        raise AssertionError(f"{operation} names {error}: say in tests/support/tenants.py what it stands for") from None
    body = operation.told.get("requestBody")
    assert not body or any(call.body is not None for call in found), f"{operation} takes a body and shows no example"
    return found


def refusal(call: Call, who: Who, owners: Iterable[Owner]) -> int | None:
    """The status that the declaration says this caller gets; None if the handler decides."""
    name = call.operation.told["operationId"]
    about = ABOUT[name]
    if name == "sendBatch" and who.kind != "nobody":
        return _of_items(call, who)
    if not about.asks:
        return 401 if about.head_proof is not None else None
    if who.kind == "nobody":
        return 401
    if not _is_of_kind(call, about, who):
        return 403
    if about.owned is not None:
        mine = next(one for one in owners if (one.tenant, one.user) == (ACME, ADA))
        return None if _reaches(about, who, mine) else 404
    return _of_names(call.body, call, about, who)


def _of_items(call: Call, who: Who) -> int | None:
    statuses = {_of_names(item, call, ABOUT["send"], who) for item in call.body["notifications"]}
    return 422 if None not in statuses else None


def _is_of_kind(call: Call, about: About, who: Who) -> bool:
    if about.callers is Callers.SERVICES:
        return who.kind != "person"
    if about.callers is Callers.OPERATORS:
        return who.kind == "operator"
    admins = about.callers is Callers.ADMINISTRATORS
    admins = admins or (about.administrators_if is not None and about.administrators_if(_params(call)))
    return who.administers or not admins


def _of_names(body: Any, call: Call, about: About, who: Who) -> int | None:
    tenant = None if about.tenant is None else _named(body, call, about.tenant)
    if tenant not in {None, who.tenant} and who.kind != "operator":
        return 403
    if who.administers or not (about.person or about.oneself != "never"):
        return None
    if who.kind == "service" and about.shared:
        return None
    person = next(filter(None, (_named(body, call, place) for place in about.person)), None)
    if person not in {None, who.user}:
        return 403
    return 400 if person is None and who.user is None else None


def _named(body: Any, call: Call, place: RequestPlace) -> str | None:
    if place.part == "path":
        return _params(call)[place.name]
    if place.part == "query":
        return parse_qs(urlsplit(call.target).query).get(place.name, [None])[0]
    return body.get(place.name) if isinstance(body, dict) else None


def _params(call: Call) -> dict[str, str]:
    given = urlsplit(call.target).path.split("/")
    declared_parts = call.operation.path.split("/")
    return {
        part[1:-1]: unquote(value) for part, value in zip(declared_parts, given, strict=True) if part.startswith("{")
    }


def _reaches(about: About, who: Who, owner: Owner) -> bool:
    """Whether the declaration lets this caller see the owner's things."""
    if who.kind == "nobody" or not about.asks:
        return False
    if who.kind == "operator":
        return True
    if who.tenant != owner.tenant:
        return False
    personal = bool(about.person or about.owned or about.oneself != "never")
    if who.administers or owner.user is None or not personal:
        return True
    return about.shared and owner.sent_by == who.service if who.kind == "service" else who.user == owner.user


def marks_in(said: str, call: Call, marks: Iterable[str]) -> list[str]:
    """The marks that a reply tells; what the caller has named is no news."""
    seen = [mark for mark in marks if mark in said]
    asked = unquote(call.target) + json.dumps(call.body) if seen else ""
    return [mark for mark in seen if mark not in asked]


def made(planted: Planted, call: Call, who: Who, more: Mapping[str, str] | None = None) -> tuple[Reply, str]:
    """The reply, and everything it says."""
    headers = {**OVERRIDE, **who.headers(), **(more or {})}
    # Operators alone may rehearse, and they may see everything: the status says all, and who leaves ends the rehearsal.
    listens = 0.0 if call.operation.told["operationId"] == "rehearse" else _LISTENS
    reply = planted.client.call(call.operation.method, call.target, call.body, headers, listen_seconds=listens)
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    return reply, f"{reply.headers} {body.decode()}"


def judged(planted: Planted, call: Call, who: Who, reply: Reply, said: str) -> list[Violation]:
    """What is wrong with a reply: a status, or marks of somebody whom the caller may not see."""
    found = []
    about = ABOUT[call.operation.told["operationId"]]
    where = f"{call.operation.method} {call.target} {json.dumps(call.body)}"
    wanted = refusal(call, who, planted.owners)
    if reply.status >= 500 or (wanted is not None and reply.status != wanted):
        found.append(Violation(who.name, where, f"{reply.status} instead of {wanted}"))
    for owner in planted.owners:
        seen = marks_in(said, call, owner.marks)
        if seen and not _reaches(about, who, owner):
            found.append(Violation(who.name, where, f"saw {seen[0]} of {owner.user} of {owner.tenant}"))
    return found


def strangers(
    planted: Planted, who: Who, chosen: Sequence[Call], more: Mapping[str, str] | None = None
) -> list[Violation]:
    """All calls of one caller who owns nothing of Ada's; her rows stay as they were."""
    before = rows_of(planted.url, planted.ada)
    found: list[Violation] = []
    answered = []
    for call in chosen:
        reply, said = made(planted, call, who, more)
        found += judged(planted, call, who, reply, said)
        if reply.status < 300 and call.operation.method != "GET":
            answered.append(f"{call.operation} {reply.status}")
    after = rows_of(planted.url, planted.ada)
    if before != after:
        what = f"changed {before - after or '{}'} to {after - before or '{}'}"
        found.append(Violation(who.name, " or ".join(answered), what))
    return found


def rows_of(url: str, marks: Sequence[str]) -> frozenset[str]:
    """Every row of every table that holds one of the marks."""
    rows = asyncio.run(_postgres_rows(url)) if url.startswith("postgres") else _sqlite_rows(url)
    return frozenset(row for row in rows if any(mark in row for mark in marks))


async def _postgres_rows(url: str) -> list[str]:
    connection = await asyncpg.connect(url, timeout=40)
    try:
        names = await connection.fetch(
            "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) AS name, table_name AS plain"
            " FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            " AND table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
        wanted = [row["name"] for row in names if row["plain"] not in _NOT_TOLD]
        every = " UNION ALL ".join(f"SELECT '{name} ' || t::text AS row FROM {name} t" for name in wanted)  # noqa: S608 - the catalogue's own names
        return [row["row"] for row in await connection.fetch(every)]
    finally:
        await connection.close()


def _sqlite_rows(url: str) -> list[str]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=40)) as file:
        names = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [
            f"{name} {row}"
            for name in names
            if name not in _NOT_TOLD
            for row in file.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - the catalogue's own names
        ]


def guards_of(name: str) -> Iterator[str]:
    """The guards that stand before one operation, by their names in tests/support/guard_mutant.py."""
    about = ABOUT[name]
    if about.head_proof is not None:
        yield "proof"
    if not about.asks:
        return
    everybody_calls = about.callers is Callers.KNOWN
    # First: without another guard, somebody else takes away what the caller of another tenant is to find.
    if about.owned is not None:
        yield "owned_tenant"
        if everybody_calls:
            yield "owned_by_caller"
    yield "credentials"
    if not everybody_calls or about.administrators_if is not None:
        yield "role"
    if about.tenant is not None:
        yield "named_tenant"
    if about.person and everybody_calls:
        yield "named_person"
