"""What the matrix of callers is tried on: things of Ada of acme, and of those who are nearly she, in each blueprint."""

import asyncio
import json
import secrets
import uuid
from collections.abc import Callable
from typing import Any

from carillon.domain.admin import AdminAction
from carillon.domain.keys import NewKey
from carillon.ledger.opening import open_ledger
from carillon.web.auth import KEY_BYTES, make_key
from tests.support import tables
from tests.support.client import Client
from tests.support.matrix import ACME, ADA, BOB, GLOBEX, ORDERS, Owner, Planted, Who, everybody, rows_of
from tests.support.push_messages import message
from tests.support.tenants import Aims
from tests.support.waiting import wait_until

_LATER = "2100-01-01T00:00:00Z"
_REFUSED = {"sandbox": {"outcome": "refused", "times": 9}}
_PEOPLE = ((ACME, ADA), (ACME, BOB), (GLOBEX, ADA), (None, ADA))
_TEMPLATES = {"listTemplates", "showTemplate", "listTemplateVersions", "readTemplateByCode", "consoleTemplates"}
_PERSONS = {"searchNotifications", "showNotification"}
_ADMINS = _PERSONS | _TEMPLATES | {"listSuppressions", "listActions", "showPreferences", "listFailedNotifications"}


def orders_key(url: str) -> str:
    """An API key of acme's service `orders`."""

    async def add() -> str:
        ledger = await open_ledger(url, allow_unsafe=True, alerts=True, lease_seconds=30.0)
        try:
            await ledger.migrate()
            made = make_key(secrets.token_bytes(KEY_BYTES))
            key = NewKey(key_id=made.key_id, secret_hash=made.secret_hash, tenant_id=ACME, role="user", name=ORDERS)
            await ledger.add_api_key(key, 100)
            return made.text
        finally:
            await ledger.aclose()

    return asyncio.run(add())


def redrive(url: str) -> str:
    """The number of a redrive that acme's administrator began."""

    async def note() -> str:
        ledger = await open_ledger(url, allow_unsafe=True, alerts=True, lease_seconds=30.0)
        try:
            return str(await ledger.note_action(AdminAction(actor="root", action="redrive", tenant_id=ACME)))
        finally:
            await ledger.aclose()

    return asyncio.run(note())


class Planting:
    """Makes the things of all owners at one listener; every text is recognised by its canary."""

    def __init__(self, client: Client, url: str) -> None:
        self.client = client
        self.url = url
        self.mark = uuid.uuid4().hex[:10]
        self.everybody = everybody(orders_key(url))
        self._marks: dict[tuple[str | None, str | None, str | None], list[str]] = {}

    def canary(self, tenant: str | None, user: str | None, sent_by: str | None = None) -> str:
        """A text that only this owner's things hold."""
        found = f"canary{self.mark}{tenant}{user}{sent_by}x"
        self.remember(found, tenant, user, sent_by)
        return found

    def remember(self, mark: str, tenant: str | None, user: str | None, sent_by: str | None = None) -> str:
        marks = self._marks.setdefault((tenant, user, sent_by), [])
        if mark not in marks:
            marks.append(mark)
        return mark

    def admin(self, tenant: str | None) -> dict[str, str]:
        return Who("", "operator" if tenant is None else "administrator", tenant).headers()

    def person(self, tenant: str | None, user: str) -> dict[str, str]:
        return Who("", "person", tenant, user).headers()

    def orders(self) -> dict[str, str]:
        return next(who for who in self.everybody if who.key).headers()

    def do(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        reply = self.client.call(method, path, body, {"X-Admin-Override": "true", **headers})
        assert reply.status < 300, (method, path, reply)
        return reply.body

    def done(self, aims: Aims, shown: dict[str, set[str]]) -> Planted:
        """Once nothing of Ada's moves any more."""
        # What an owner has by several senders is listed once for each: the service that sent it, or nobody.
        owners = [Owner(tenant, user, tuple(marks), by) for (tenant, user, by), marks in self._marks.items()]
        owners.sort(key=lambda one: one.sent_by is None)
        chosen = {kind: frozenset(names) for kind, names in shown.items()}
        planted = Planted(self.client, self.url, aims, tuple(owners), self.everybody, chosen)
        seen: list[frozenset[str]] = [frozenset()]

        def still() -> bool:
            seen.append(rows_of(self.url, planted.ada))
            return bool(seen[-1]) and seen[-1] == seen[-2]

        wait_until(still, timeout=60, what="nothing of Ada's to move any more")
        return planted

    def templates(self) -> tuple[str, str, str]:
        """A template and a suppression of each tenant; the key and the id of acme's template, acme's suppression."""
        ids, suppressions = {}, {}
        for tenant in (ACME, GLOBEX):
            text = self.canary(tenant, None)
            body = {"templateKey": f"secret_{self.mark}_{tenant}", "channel": "email", "subjectTemplate": text}
            body["bodyTemplate"] = f"{text} {{{{name}}}}"
            ids[tenant] = self.do("POST", "/api/v1/templates", body, self.admin(tenant))
            body = {"channel": "email", "address": f"{text.lower()}@example.org", "reason": text}
            suppressions[tenant] = self.do("POST", "/api/v1/suppressions", body, self.admin(tenant))
        open_to_all = {"templateKey": f"open_{self.mark}", "channel": "email", "bodyTemplate": "{{name}}"}
        self.do("POST", "/api/v1/templates", open_to_all | {"subjectTemplate": "Hello"}, self.admin(None))
        return str(ids[ACME]["templateKey"]), str(ids[ACME]["id"]), str(suppressions[ACME]["id"])

    def preferences(self) -> None:
        for tenant, user in _PEOPLE:
            contacts = {"contacts": {"email": f"{self.canary(tenant, user)}@example.org"}}
            self.do("PUT", "/api/v1/preferences", contacts, self.person(tenant, user))


def notifications(client: Client, url: str) -> Planted:
    """In local and listo: waiting and failed notifications, templates, preferences, suppressions, an audit trail."""
    planting = Planting(client, url)
    key, template, suppression = planting.templates()
    planting.preferences()
    for tenant, user in _PEOPLE:
        _sent(planting, key, (tenant, user, None), planting.person(tenant, user), scheduledFor=_LATER)
    by_orders = (ACME, ADA, ORDERS)
    waiting = _sent(planting, key, by_orders, planting.orders(), scheduledFor=_LATER)
    failed = [_sent(planting, key, by_orders, planting.orders(), metadata=_REFUSED) for _ in range(2)]

    def stories() -> list[Any]:
        return [client.get(f"/api/v1/notifications/{one}", planting.admin(ACME)).body for one in failed]

    wait_until(lambda: {one["status"] for one in stories()} == {"failed"}, timeout=60, what="failed notifications")
    retry = {"reason": planting.canary(*by_orders)}
    planting.do("POST", f"/api/v1/admin/notifications/{failed[1]}/retry", retry, planting.admin(ACME))
    route = str(stories()[0]["routes"][0]["routeId"])
    told = _in_inboxes(planting)
    aims = Aims(ACME, waiting, failed[0], route, template, key, ADA, f"addr{planting.mark}@example.org", told)
    aims = aims._replace(suppression=suppression, redrive=redrive(url))
    return planting.done(
        aims,
        {
            "person": _PERSONS | {"showPreferences", "showOwnPreferences", "readTemplateByCode", "showInbox"},
            "service": _PERSONS | {"readTemplateByCode"},
            "administrator": _ADMINS | {"listDeadLetters", "showInbox"},
            "operator": _ADMINS - {"readTemplateByCode"} | {"listDeadLetters"},
        },
    )


def _in_inboxes(planting: Planting) -> str:
    """A message in everybody's inbox; the id of the one that strangers aim at."""
    key = f"inbox_{planting.mark}"
    body = {"templateKey": key, "channel": "inApp", "subjectTemplate": "Hello", "bodyTemplate": "{{name}}"}
    planting.do("POST", "/api/v1/templates", body, planting.admin(None))
    ids = {}
    for tenant, user in _PEOPLE:
        text = planting.canary(tenant, user)
        sent = {"templateKey": key, "channel": "inApp", "userId": user, "data": {"name": text}}
        headers = planting.person(tenant, user)
        told = planting.do("POST", "/api/v1/notifications/send", sent, headers)["notificationId"]
        ids[tenant, user] = planting.remember(str(told), tenant, user)

        def there(path: str = f"/notifications/{user}", headers: dict[str, str] = headers) -> bool:
            return bool(planting.client.get(path, headers).body["count"])

        wait_until(there, timeout=60, what=f"the inbox of {user}")
    return ids[ACME, ADA]


def _sent(
    planting: Planting, key: str, owner: tuple[str | None, str, str | None], headers: dict[str, str], **more: Any
) -> str:
    tenant, user, _ = owner
    text = planting.canary(*owner)
    chosen = key.replace(ACME, tenant) if tenant else f"open_{planting.mark}"
    body: dict[str, Any] = {"templateKey": chosen, "channel": "email", "userId": user}
    body |= {"recipient": f"{text}@example.org", "data": {"name": text, "link": text}}
    body |= {"metadata": {"note": text} | more.pop("metadata", {})}
    found = planting.do("POST", "/api/v1/notifications/send", body | more, headers)
    return planting.remember(str(found["notificationId"]), *owner)


def streams(client: Client, url: str) -> Planted:
    """In sse: a notification in each person's log, templates, preferences, suppressions."""
    planting = Planting(client, url)
    key, template, suppression = planting.templates()
    planting.preferences()
    ids = {}
    for tenant, user in _PEOPLE:
        by, headers = (ORDERS, planting.orders()) if tenant == ACME else (None, planting.admin(tenant))
        text = planting.canary(tenant, user, by)
        event = {"event_id": f"event-{text}", "event_type": "job.new", "user_id": user, "payload": {"title": text}}
        told = planting.do("POST", "/notifications", event, headers)["notification_id"]
        ids[tenant, user] = planting.remember(told, tenant, user, by)
        # It is in the log once its person has read it.
        read = client.call("GET", "/notifications/stream", None, planting.person(tenant, user), listen_seconds=30)
        assert text in str(read.body), read
    mine = ids[ACME, ADA]
    aims = Aims(ACME, mine, mine, f"sse:user:{ADA}", template, key, ADA, f"addr{planting.mark}@example.org", mine)
    aims = aims._replace(suppression=suppression, redrive=redrive(url))
    persons = {*_PERSONS, "showInbox", "showPreferences", "streamNotifications"}
    return planting.done(
        aims,
        {
            "person": persons | {"showOwnPreferences", "readTemplateByCode"},
            "service": _PERSONS | {"readTemplateByCode"},
            "administrator": persons | _TEMPLATES | {"listSuppressions"},
            "operator": _PERSONS | {"listTemplates", "showTemplate", "listSuppressions", "showPreferences"},
        },
    )


def subscriptions(client: Client, url: str, push: Callable[[str, str], object]) -> Planted:
    """In billing: everybody has subscribed, paid, been paid back and used a feature; `push` fills a queue."""
    planting = Planting(client, url)
    ids = {}
    for tenant, user in _PEOPLE:
        text = planting.canary(tenant, user)
        body = {"plan_id": text, "user_id": user, "trial": True}
        made = planting.do("POST", "/v1/subscriptions", body, planting.person(tenant, user))
        ids[tenant, user] = planting.remember(made["id"], tenant, user)
        usage = {"user_id": user, "feature_name": text, "delta": 3} | ({} if tenant is None else {"tenant_id": tenant})
        push("q:sub:usage_sync", json.dumps({"id": f"{text}-usage", "action": "usage_sync", "payload": usage}))

    def rows(table: str) -> list[tables.Row]:
        return asyncio.run(tables.read(url, f"SELECT * FROM {table}"))  # noqa: S608 - a name of ours

    def settled() -> bool:
        trials = [row for row in rows("subscriptions") if row["status"] == "trial"]
        each = len(rows("refunds")), len(rows("usage_counters")), len(trials)
        events = [row for row in rows("payment_webhook_requests") if row["processed"]]
        return (*each, len(events)) == (len(ids),) * 4

    wait_until(settled, timeout=60, what="everybody's trial")
    mine = ids[ACME, ADA]
    (paid,) = (row for row in rows("payments") if row["subscription_id"] == mine)
    transaction = planting.remember(paid["transaction_id"], ACME, ADA)
    for row in rows("refunds"):
        if row["transaction_id"] == transaction:
            planting.remember(row["refund_id"], ACME, ADA)
    aims = Aims(ACME, mine, mine, mine, mine, "basic", ADA, "x@example.org", subscription=mine, transaction=transaction)
    aims = aims._replace(event=planting.remember(paid["event_id"], ACME, ADA), queue="q:pay:subscription_update")
    own = {"showSubscription", "showUsage", "showPaymentEvent"}
    all_of_it = own | {"showPayment", "listRefunds"}
    return planting.done(aims, {"person": own, "administrator": all_of_it, "operator": all_of_it})


def pushes(client: Client, url: str, publish: Callable[[Any], object]) -> Planted:
    """In a push worker, which knows no tenants: a push to each of two people, whom operators alone see."""
    planting = Planting(client, url)
    for user in (ADA, BOB):
        text = planting.canary(ACME, user)
        publish(message(user_id=text, trace_id=f"{text}-trace"))

    def sent() -> bool:
        return len(asyncio.run(tables.read(url, "SELECT * FROM audit_logs"))) >= 2

    wait_until(sent, timeout=60, what="two pushes")
    aims = Aims(ACME, "", "", "", "", "", ADA, "x@example.org", queue="push.queue")
    return planting.done(aims, {})
