"""A subscription from its first payment to its end, under a clock that the tests move; and a gateway of one's own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tables
from tests.support.billing_stand import QUEUES, Billing, event, stand_fixture
from tests.support.process import Program, run_carillon

LIFE = "[billing.life]\nevery_seconds = 0.05\nrenew_before_days = 1\nretry_days = 1\ngrace_days = 7\n"
DECLINING = "[gateway]\ndeclined_amounts = [13.13]\n[billing.plans.unlucky]\namount = 13.13\n"
billing: Any = stand_fixture(LIFE + DECLINING, params=("postgres", "sqlite"))

OWN_GATEWAY = """
from carillon.blueprints.billing.gateway import Charged

class Bank:
    def __init__(self, options): self.prefix = options["prefix"]
    async def charge(self, transaction_id, order):
        return Charged(status="success", reference=f"{self.prefix}-{order.subscription_id}", message="paid")
    async def initiate_refund(self, transaction_id, amount, reason): return f"{self.prefix}-back"
    async def aclose(self): pass

def create(options, clock): return Bank(options)
def broken(options, clock): return object()
"""


def pass_days(billing: Billing, days: float, *subscription_ids: str) -> None:
    """Move what the service wrote down into the past: its clock is the database's."""
    named = ", ".join(f"'{each}'" for each in subscription_ids)
    for column in ("ends_at", "renewal_asked_at"):
        moved = (
            f"{column} - {days} * interval '1 day'" if "postgres" in billing.url else f"{column} - {days} * 86400000"
        )
        statement = f"UPDATE subscriptions SET {column} = {moved} WHERE subscription_id IN ({named})"  # noqa: S608 - ours
        asyncio.run(tables.write(billing.url, statement))


def active(billing: Billing, plan_id: str = "basic") -> str:
    one = billing.create(plan_id=plan_id)
    if plan_id == "unlucky":
        # The first payment is declined too; its report must not come after the one that makes the subscription active.
        billing.until(lambda: len(billing.found("payment_webhook_requests", processed=1)) == 1, what="the report")
        billing.until_idle()
        assert billing.deliver(event(f"first-{one}", one, action="initial")).status == 200
    billing.until_status(one, "active")
    billing.until_idle()
    return one


def payments(billing: Billing, subscription_id: str) -> list[tuple[str, str]]:
    rows = sorted(billing.found("payments", subscription_id=subscription_id), key=lambda row: str(row["created_at"]))
    return [(row["action"], row["status"]) for row in rows]


@pytest.mark.req("X3-4")
def test_a_period_is_renewed_by_itself_and_once(billing: Billing) -> None:
    billing.start()
    billing.start()
    one, other = active(billing), active(billing)
    pass_days(billing, 29.5, one)
    billing.until(lambda: len(payments(billing, one)) == 2, what="the renewal")
    billing.until_idle()
    assert payments(billing, one) == [("initial", "success"), ("renewal", "success")]
    assert billing.subscription(one)["status"] == "active"
    assert payments(billing, other) == [("initial", "success")]
    (row,) = billing.found("subscriptions", subscription_id=one)
    assert (row["failed_renewals"], row["renewal_asked_at"]) == (0, None)


@pytest.mark.req("X3-4", "S3-79")
def test_a_declined_renewal_is_past_due_asked_again_and_cancelled_after_the_grace(billing: Billing) -> None:
    billing.start()
    one = active(billing, "unlucky")
    pass_days(billing, 29.5, one)
    billing.until_status(one, "past_due")
    billing.until_idle()
    assert payments(billing, one)[-1] == ("renewal", "failed")
    tried = len(payments(billing, one))
    pass_days(billing, 1.1, one)
    billing.until(lambda: len(payments(billing, one)) == tried + 1, what="the second try")
    billing.until_idle()
    assert billing.subscription(one)["status"] == "past_due"
    pass_days(billing, 7, one)
    assert billing.until_status(one, "cancelled")["cancel_at_end"] is False
    billing.until_idle()
    # A payment restores the service, and a new period begins.
    assert billing.deliver(event("late", one, action="renewal")).status == 200
    assert billing.subscription(one)["status"] == "active"


@pytest.mark.req("X3-4", "S3-79")
def test_without_a_grace_the_first_declined_renewal_revokes(billing: Billing) -> None:
    billing.start(CARILLON_BILLING__LIFE__GRACE_DAYS="0")
    one = active(billing, "unlucky")
    pass_days(billing, 29.5, one)
    billing.until_status(one, "revoked")
    billing.until_idle()
    assert payments(billing, one)[-1] == ("renewal", "failed")


@pytest.mark.req("X3-4")
def test_a_payment_within_the_grace_makes_it_active_again(billing: Billing) -> None:
    billing.start()
    one = active(billing, "unlucky")
    pass_days(billing, 29.5, one)
    billing.until_status(one, "past_due")
    billing.until_idle()
    assert billing.deliver(event("paid", one, action="renewal")).status == 200
    assert billing.subscription(one)["status"] == "active"


@pytest.mark.req("X3-4")
def test_a_period_that_nobody_paid_is_past_due_at_its_end(billing: Billing) -> None:
    """Renewals are off: the operator's own program asks for them, and did not."""
    billing.start(CARILLON_BILLING__LIFE__RENEWALS="false")
    one = active(billing)
    pass_days(billing, 30.1, one)
    billing.until_status(one, "past_due")
    assert payments(billing, one) == [("initial", "success")]
    pass_days(billing, 7, one)
    billing.until_status(one, "cancelled")


@pytest.mark.req("X3-4")
def test_who_cancels_is_served_to_the_end_and_charged_no_more(billing: Billing) -> None:
    billing.start()
    one, other = active(billing), active(billing)
    cancelled = billing.client().call("POST", f"/v1/subscriptions/{one}/cancel", {})
    assert (cancelled.status, cancelled.body["status"], cancelled.body["cancel_at_end"]) == (200, "active", True)
    pass_days(billing, 29.5, one, other)
    billing.until(lambda: len(payments(billing, other)) == 2, what="the other's renewal")
    assert billing.subscription(one)["status"] == "active"
    pass_days(billing, 1, one)
    billing.until_status(one, "cancelled")
    assert payments(billing, one) == [("initial", "success")]
    at_once = billing.client().call("POST", f"/v1/subscriptions/{other}/cancel", {"at_end": False})
    assert at_once.body["status"] == "cancelled"


@pytest.mark.req("X3-1", "S3-80")
def test_the_job_log_is_newest_first_over_both_services(billing: Billing) -> None:
    programs = [
        billing.start_subscription("http://127.0.0.1:1"),
        billing.start_payment("http://127.0.0.1:1"),
    ]
    for number in range(60):
        billing.push("q:sub:usage_sync", {"user_id": "ada", "feature_name": "api", "delta": number})
        billing.push("q:pay:refund_initiation", {"transaction_id": f"t{number}", "amount": 1})
    billing.until_idle()
    billing.until(lambda: len(entries(billing)) >= 240, what="start and success of every message")
    found = entries(billing)
    assert [entry["timestamp"] for entry in found] == sorted((entry["timestamp"] for entry in found), reverse=True)
    assert {entry["queue"] for entry in found} == {"q:sub:usage_sync", "q:pay:refund_initiation"}
    # A start never comes after its end; on a busy machine a message may be started again.
    for number in {entry["message_id"] for entry in found}:
        told = [entry["status"] for entry in reversed(found) if entry["message_id"] == number]
        assert (set(told[::2]), set(told[1:-1:2]) - {"retry"}, told[-1]) == ({"start"}, set(), "success")
    assert len(programs) == 2


@pytest.mark.req("X3-2", "S3-81", "S3-23")
def test_a_tick_without_a_message_is_logged_if_that_is_switched_on(billing: Billing) -> None:
    quiet = billing.start()
    billing.push("q:sub:usage_sync", {"user_id": "ada", "feature_name": "api", "delta": 1})
    billing.until(lambda: len(entries(billing)) == 2, what="the message")
    billing.until_idle()
    quiet.terminate()
    quiet.wait()
    assert {entry["status"] for entry in entries(billing)} == {"start", "success"}
    before, rows = kept(billing), billing.found("job_logs")
    billing.start(CARILLON_BEAT__LOG_NO_MESSAGE="true")
    billing.until(lambda: {entry["queue"] for entry in ticks(billing)} == {*QUEUES}, what="a tick of every queue")
    (one, *_) = ticks(billing)
    assert (one["status"], one["message_id"], one["attempts"], one["info"]) == ("no_message", "", 0, {})
    # Nothing else has changed: no list, no lock, no row.
    assert kept(billing) == before
    assert billing.found("job_logs") == rows
    assert {row["status"] for row in rows} == {"success"}


@pytest.mark.req("X3-3", "S3-59", "P-830")
def test_a_package_brings_its_own_gateway(billing: Billing) -> None:
    where = package(billing.folder / "site", "bank = own_gateway:create\nodd = own_gateway:broken\n")
    options = {"CARILLON_GATEWAY__KIND": "bank", "CARILLON_GATEWAY__OPTIONS__PREFIX": "acme", "PYTHONPATH": where}
    billing.start(**options)
    one = billing.create(trial=True, plan_id="trial")
    billing.until_status(one, "trial")
    billing.until_idle()
    (payment,) = billing.found("payments", subscription_id=one)
    (refund,) = billing.found("refunds", transaction_id=payment["transaction_id"])
    assert (payment["gateway_reference"], refund["gateway_reference"]) == (f"acme-{one}", "acme-back")
    without = {name: text for name, text in options.items() if not name.endswith("PREFIX")}
    for given, said in (
        ({**options, "CARILLON_GATEWAY__KIND": "nobody"}, "no gateway 'nobody' is installed; known: bank, mock, odd"),
        ({**options, "CARILLON_GATEWAY__KIND": "odd"}, "odd made a object, which is not a gateway"),
        (without, "bank was not made from gateway.options: KeyError: 'prefix'"),
    ):
        refused: Program = billing.launch(**given)
        assert refused.wait() == 2
        assert f"gateway.kind: {said}" in refused.tail()
        assert "Traceback" not in refused.tail()
        assert f"ill  Gateway: gateway.kind: {said}" in examined(billing, **given)
    assert "ok   Gateway: bank" in examined(billing, **options)


def examined(billing: Billing, **environment: str) -> str:
    given = {**billing.environment(), **environment}
    return run_carillon(["doctor", "--blueprint", "billing"], env=given, cwd=billing.folder).stdout


def entries(billing: Billing) -> list[dict[str, Any]]:
    return [json.loads(text) for text in billing.redis.lrange("q:log:jobs", 0, -1)]


def kept(billing: Billing) -> set[str]:
    """The keys of queues and locks."""
    return {str(key) for pattern in ("q:*", "lock:*") for key in billing.redis.keys(pattern)}


def ticks(billing: Billing) -> list[dict[str, Any]]:
    return [entry for entry in entries(billing) if entry["status"] == "no_message"]


def package(folder: Path, entry_points: str) -> str:
    """A folder that holds an installed distribution with these gateways."""
    told = folder / "own_gateway-1.0.dist-info"
    told.mkdir(parents=True)
    (folder / "own_gateway.py").write_text(OWN_GATEWAY)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: own-gateway\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[carillon.gateways]\n{entry_points}")
    return str(folder)


@pytest.mark.req("X3-5")
def test_the_list_of_queues_fits_into_eighty_columns(billing: Billing) -> None:
    billing.start_subscription()
    for _ in range(12):
        billing.push("q:pay:subscription_update", {"n": 1})
    listing = run_carillon(
        ["queues", "list", "--blueprint", "billing"],
        env={**billing.environment(), "COLUMNS": "80"},
        cwd=billing.folder,
    )
    assert listing.returncode == 0, listing.stderr
    lines = [line for line in listing.stdout.splitlines() if "q:" in line]
    assert max(len(line) for line in listing.stdout.splitlines()) <= 80
    assert sorted(line.split()[1] for line in lines) == sorted(QUEUES)
    (full,) = [line for line in lines if "q:pay:subscription_update" in line]
    assert [cell.strip() for cell in full.split("│")[2:6]] == ["12", "0", "0", "0"]
