"""Tenants where a request alone does not show them: messages between services, repeats, and an earlier meaning."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tables
from tests.support.billing_stand import Billing, stand_fixture
from tests.support.client import Client
from tests.support.listo_stand import SECRET as LISTO_SECRET
from tests.support.listo_stand import token
from tests.support.process import Program, run_carillon

JWT: dict[str, Any] = {"JWT_SECRET_KEY": LISTO_SECRET}
billing: Any = stand_fixture(**JWT)
ADA, ADA_ELSEWHERE = token("ada", tenant="acme"), token("ada", tenant="globex")
OPERATOR = token("root", role="admin")


def subscribed(billing: Billing, headers: dict[str, str], **more: Any) -> Any:
    body = {"plan_id": "basic", "user_id": "ada", "trial": True}
    reply = billing.client().call("POST", "/v1/subscriptions", body, headers | more)
    assert reply.status == 201, reply
    return reply.body


def until_status(billing: Billing, subscription_id: str, headers: dict[str, str], status: str) -> None:
    def there() -> bool:
        return bool(billing.client().get(f"/v1/subscriptions/{subscription_id}", headers).body["status"] == status)

    billing.until(there, what=f"{subscription_id} to be {status}")


def until_trial(billing: Billing, subscription_id: str, headers: dict[str, str]) -> None:
    until_status(billing, subscription_id, headers, "trial")


@pytest.mark.req("S3-61", "S3-50", "S3-55")
def test_every_message_and_row_of_a_subscription_has_its_tenant(billing: Billing) -> None:
    billing.start()
    mine = subscribed(billing, ADA)
    theirs = subscribed(billing, ADA_ELSEWHERE)
    nobodys = subscribed(billing, token("ada"))
    assert [each.get("tenant_id") for each in (mine, theirs, nobodys)] == ["acme", "globex", None]
    for each, headers in ((mine, ADA), (theirs, ADA_ELSEWHERE), (nobodys, token("ada"))):
        until_trial(billing, each["id"], headers)
    billing.until(lambda: len(billing.found("refunds")) == 3, what="three refunds")
    for each, tenant in ((mine, "acme"), (theirs, "globex"), (nobodys, "")):
        (paid,) = billing.found("payments", subscription_id=each["id"])
        (event,) = billing.found("payment_webhook_requests", event_id=paid["event_id"])
        (refund,) = billing.found("refunds", transaction_id=paid["transaction_id"])
        assert {paid["tenant_id"], event["tenant_id"], refund["tenant_id"]} == {tenant}
        payload = event["payload"] if isinstance(event["payload"], dict) else json.loads(event["payload"])
        assert payload.get("tenant_id", "") == tenant
        assert ("tenant_id" in payload) == bool(tenant), "without a tenant the payload is the document's"


@pytest.mark.req("X3-4")
def test_the_life_of_one_tenant_s_subscription_leaves_the_other_s_alone(billing: Billing) -> None:
    billing.start(CARILLON_BILLING__LIFE__EVERY_SECONDS="0.1")
    mine, theirs = subscribed(billing, ADA)["id"], subscribed(billing, ADA_ELSEWHERE)["id"]
    until_status(billing, mine, ADA, "trial")
    until_status(billing, theirs, ADA_ELSEWHERE, "trial")
    # The same person in both tenants; only the first one's period is nearly over.
    ends(billing, mine, "now() + interval '1 hour'")
    until_status(billing, mine, ADA, "active")
    paid = billing.found("payments", subscription_id=mine)
    assert {(row["action"], row["tenant_id"]) for row in paid} == {("trial", "acme"), ("renewal", "acme")}
    assert [row["action"] for row in billing.found("payments", subscription_id=theirs)] == ["trial"]
    # Nobody cancels for another tenant, and an end is one subscription's.
    cancel = f"/v1/subscriptions/{theirs}/cancel"
    assert billing.client().call("POST", cancel, {}, ADA).status == 404
    assert billing.client().call("POST", cancel, {}, ADA_ELSEWHERE).body["cancel_at_end"] is True
    ends(billing, theirs, "now()")
    until_status(billing, theirs, ADA_ELSEWHERE, "cancelled")
    assert billing.client().get(f"/v1/subscriptions/{mine}", ADA).body["status"] == "active"
    assert len(billing.found("payments", subscription_id=theirs)) == 1


def ends(billing: Billing, subscription_id: str, when: str) -> None:
    moved = f"UPDATE subscriptions SET ends_at = {when} WHERE subscription_id = '{subscription_id}'"  # noqa: S608 - ours
    asyncio.run(tables.write(billing.url, moved))


def test_the_same_key_of_the_same_name_in_two_tenants_makes_two_subscriptions(billing: Billing) -> None:
    billing.start()
    key = {"Idempotency-Key": "first"}
    made = [subscribed(billing, headers, **key)["id"] for headers in (ADA, ADA, ADA_ELSEWHERE, token("ada"))]
    assert made[0] == made[1]
    assert len(set(made)) == 3


def test_a_message_of_another_tenant_changes_nothing_and_fails(billing: Billing) -> None:
    billing.start()
    mine = subscribed(billing, ADA)["id"]
    until_trial(billing, mine, ADA)
    (paid,) = billing.found("payments", subscription_id=mine)
    billing.until(lambda: len(billing.found("refunds")) == 1, what="the refund")
    named = {"subscription_id": mine, "tenant_id": "globex"}
    messages = {
        "q:sub:plan_change": {**named, "new_plan_id": "pro"},
        "q:sub:payment_initiation": {**named, "amount": 1, "currency": "USD"},
        "q:pay:refund_initiation": {"transaction_id": paid["transaction_id"], "amount": 1, "tenant_id": "globex"},
    }
    for queue, payload in messages.items():
        billing.push(queue, {"id": f"foreign-{queue}", "action": "renewal", "payload": payload})

    def given_up() -> bool:
        rows = billing.found("job_logs")
        ended = {row["queue"] for row in rows if row["message_id"].startswith("foreign-") and row["status"] == "failed"}
        return ended == set(messages)

    billing.until(given_up, what="three messages to be given up")
    (kept,) = billing.found("subscriptions", subscription_id=mine)
    assert (kept["plan_id"], kept["tenant_id"]) == ("basic", "acme")
    assert len(billing.found("payments", subscription_id=mine)) == 1
    assert len(billing.found("refunds")) == 1
    event = {"event_id": "foreign", "subscription_id": mine, "status": "failed", "tenant_id": "globex"}
    assert billing.deliver(event).status == 500
    assert billing.client().get(f"/v1/subscriptions/{mine}", ADA).body["status"] == "trial"


def test_usage_is_counted_for_the_person_in_the_tenant(billing: Billing) -> None:
    billing.start()
    for number, tenant in enumerate(("acme", "globex", None), 1):
        usage = {"user_id": "ada", "feature_name": "export", "delta": number}
        usage |= {} if tenant is None else {"tenant_id": tenant}
        billing.push("q:sub:usage_sync", {"id": f"usage-{number}", "action": "usage_sync", "payload": usage})
    billing.until(lambda: len(billing.found("usage_counters")) == 3, what="three counters")

    def counted(headers: dict[str, str], more: str = "") -> int:
        reply = billing.client().get(f"/v1/usage?user_id=ada{more}", headers)
        return int(reply.body["usage"][0]["usage_count"])

    assert [counted(headers) for headers in (ADA, ADA_ELSEWHERE, token("ada"))] == [1, 2, 3]
    assert [counted(OPERATOR), counted(OPERATOR, "&tenant_id=globex")] == [3, 2]
    assert billing.client().get("/v1/usage?user_id=ada&tenant_id=acme", ADA_ELSEWHERE).status == 403


def test_rows_of_before_are_given_to_a_tenant_by_a_command(billing: Billing) -> None:
    billing.start()
    made = subscribed(billing, token("ada"))["id"]
    until_trial(billing, made, token("ada"))
    path = f"/v1/subscriptions/{made}"
    seen = [billing.client().get(path, headers).status for headers in (ADA, token("ada"), OPERATOR)]
    assert seen == [404, 200, 200]
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", **billing.environment()}

    def assign(*arguments: str) -> Any:
        command = ["billing", "assign", *arguments, "--config", str(billing.folder / "billing.toml")]
        return run_carillon(command, env=environment, cwd=billing.folder, timeout=60)

    assert "name whose rows" in assign("acme").stderr
    assert "not the name of a tenant" in assign("a b", "--everybody").stderr
    done = assign("acme", "--user", "ada", "--yes")
    assert (done.returncode, "acme has" in done.stdout) == (0, True), done.stderr
    assert [billing.client().get(path, headers).status for headers in (ADA, token("ada"), OPERATOR)] == [200, 404, 200]
    assert assign("acme", "--user", "ada", "--yes").stdout.startswith("No row of ada is without a tenant")
    # What was on its way without a tenant still finds its subscription.
    billing.push("q:sub:payment_initiation", {"id": "old", "action": "renewal", "payload": {"subscription_id": made}})
    billing.until(lambda: len(billing.found("payments", tenant_id="acme")) == 2, what="a renewal in the tenant")


def local(folder: Path, settings: str = "") -> Program:
    (folder / "carillon.toml").write_text(f'extends = "local"\n[http]\nport = 0\n{settings}')
    given = {**JWT, "DATABASE_URL": f"sqlite:///{folder}/local.db"}
    return Program("serve", "--config", "carillon.toml", env=given, cwd=folder)


def sent(client: Client, headers: dict[str, str], key: str | None = None, **more: Any) -> Any:
    body = {"templateKey": "welcome", "channel": "push", "recipient": "demo-device", "data": {"name": "A", "link": "x"}}
    keyed = {} if key is None else {"Idempotency-Key": key}
    reply = client.call("POST", "/api/v1/notifications/send", body | more, headers | keyed)
    assert reply.status == 202, reply
    return reply.body["notificationId"]


def found(client: Client, headers: dict[str, str]) -> set[str]:
    return {item["id"] for item in client.get("/api/v1/notifications", headers).body["items"]}


def test_without_tenants_people_see_their_own_and_services_what_they_sent(tmp_path: Path) -> None:
    ada, bob = token("ada"), token("bob")
    orders, invoices = token("orders", role="service"), token("invoices", role="service")
    with local(tmp_path) as program:
        client = Client.of(program)
        assert not program.events("people_reach_tenant")
        own, other = sent(client, ada), sent(client, bob)
        by_orders = sent(client, orders, userId="ada")
        assert [found(client, who) for who in (ada, bob, orders, invoices)] == [
            {own, by_orders},
            {other},
            {by_orders},
            set(),
        ]
        assert found(client, OPERATOR) == {own, other, by_orders}
        path = f"/api/v1/notifications/{by_orders}"
        assert [client.get(path, who).status for who in (ada, bob, orders, invoices)] == [200, 404, 200, 404]
        assert client.call("POST", f"{path}/cancel", headers=invoices).status == 404
        refused = client.call("POST", "/api/v1/dead-letters/redrive", {"items": []}, orders)
        assert refused.status == 403, "redriving is for administrators"


def test_nobody_uses_up_the_key_of_anothers_message(tmp_path: Path) -> None:
    ada, bob, orders = (
        token("ada", tenant="acme"),
        token("bob", tenant="acme"),
        token("o", role="service", tenant="acme"),
    )
    with local(tmp_path) as program:
        client = Client.of(program)
        first = sent(client, ada, "order-1", serviceOrigin="orders")
        assert sent(client, ada, "order-1", serviceOrigin="orders") == first
        ids = {
            sent(client, who, "order-1", serviceOrigin="orders", userId=user)
            for who, user in ((bob, "bob"), (orders, "ada"))
        }
        assert len(ids | {first}) == 3
        body: dict[str, Any] = {"templateKey": "welcome", "channel": "push", "recipient": "demo-device"}
        body |= {"data": {"name": "A", "link": "x"}, "serviceOrigin": "orders"}
        said = client.call("POST", "/api/v1/notifications/explain", body, {**ada, "Idempotency-Key": "order-1"}).body
        (step,) = (step for step in said["steps"] if step["step"] == "idempotency")
        assert step["detail"] == {"key": "order-1", "replays": first}


def test_the_earlier_meaning_is_a_setting_and_loud(tmp_path: Path) -> None:
    ada, bob = token("ada", tenant="acme"), token("bob", tenant="acme")
    with local(tmp_path, "[auth]\npeople_reach_tenant = true\n") as program:
        client = Client.of(program)
        (line,) = program.events("people_reach_tenant")
        assert (line["level"], line["setting"]) == ("warning", "auth.people_reach_tenant")
        by_service = sent(client, token("orders", role="service", tenant="acme"), userId="ada")
        named = sent(client, bob, userId="ada")
        assert found(client, bob) == found(client, ada) == {by_service, named}
        assert found(client, token("ada", tenant="globex")) == set()
