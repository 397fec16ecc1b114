"""Both billing services in one process, on both engines, with nothing said about where they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from carillon.compose.billing import service_token
from carillon.config import billing as billing_settings
from tests.scenario.test_http_fuzz import UNLIMITED, fuzz
from tests.support import http_client
from tests.support.billing_stand import PROCESS, SECRET, Billing, event, stand_fixture

one: Any = stand_fixture(name="one", scope="module", params=("postgres", "sqlite"), SERVICE_TOKEN="", **UNLIMITED)


@pytest.fixture(scope="module")
def both(one: Billing) -> Billing:
    """One process that is both services, with nothing said about where they are or what they show each other."""
    one.start()
    return one


@pytest.mark.req("S3-99", "S3-91")
def test_one_process_is_both_services(both: Billing) -> None:
    subscription_id = both.create(trial=True)
    both.until_status(subscription_id, "trial")
    both.until_idle()
    (payment,) = both.found("payments", subscription_id=subscription_id)
    refunds = both.client().get(f"/v1/refunds?transaction_id={payment['transaction_id']}").body["refunds"]
    assert [each["reason"] for each in refunds] == ["trial_refund"]
    both.push("q:sub:payment_initiation", {"action": "renewal", "payload": {"subscription_id": subscription_id}})
    assert both.until_status(subscription_id, "active")["ends_at"] is not None


@pytest.mark.req("S3-53", "S3-75", "S3-76", "S3-77")
def test_the_receiver_remembers_on_both_engines(both: Billing) -> None:
    subscription_id = both.create()
    both.until_status(subscription_id, "active")
    told = event("payment_by-hand_1", subscription_id, "failed")
    assert [both.deliver(told).body["status"] for _ in range(2)] == ["processed", "duplicate"]
    assert both.subscription(subscription_id)["status"] == "revoked"
    assert both.deliver(event("payment_lost_1", "nobody")).status == 500
    status = both.client().get("/v1/webhooks/status/payment_lost_1").body
    assert (status["processed"], status["retry_count"]) == (False, 1)


def test_every_endpoint_is_documented_and_healthy(both: Billing) -> None:
    document = both.client().get("/openapi.json").body
    assert {"/v1/subscriptions", "/v1/payments/internal/process", "/v1/webhooks/payment"} <= set(document["paths"])
    health = both.client().get("/health").body
    assert (health["status"], set(health["checks"])) == ("healthy", {"ledger", "redis"})
    assert both.client().get("/readyz").status == 200
    assert both.client().get("/api/v1/notifications").status == 404


@pytest.mark.parametrize("one", ["postgres"], indirect=True)
def test_the_doctor_finds_nothing_ill(both: Billing) -> None:
    doctor = both.command("doctor", "--json")
    assert doctor.wait(60) == 0, doctor.tail()
    findings = {each["part"]: each for each in json.loads("".join(doctor.noise))}
    assert findings["Redis"]["words"].endswith("queues")
    assert findings["Templates"]["verdict"] == "ok"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("one", ["postgres"], indirect=True)
def test_it_keeps_to_its_own_document(both: Billing, tmp_path: Path) -> None:
    """Schemathesis: whatever the document allows or forbids, the program agrees; in particular nothing is a 500."""
    program = both.programs[-1]
    client = http_client.Client(program.wait_ready()["addresses"][0])
    token = service_token(billing_settings.Billing(signing_secret=SECRET))
    fuzz(program, client, tmp_path, 3, "--header", f"Authorization: Bearer {token}")


def test_nobody_pays_with_a_token_made_from_another_secret(both: Billing) -> None:
    reply = both.client().call("POST", f"{PROCESS}?subscription_id=s", {}, {"Authorization": f"Bearer {SECRET}"})
    assert reply.status == 401
