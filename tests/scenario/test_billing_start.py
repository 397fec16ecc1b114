"""How billing starts: the variables it reads, and what refuses the start."""

import json
import threading
from typing import Any

import pytest

from carillon.cli.serve import chosen
from carillon.compose import Program
from carillon.config.policies import queue_policies
from carillon.config.reading import load
from carillon.domain.errors import ConfigurationError
from tests.support.billing_stand import QUEUES, Billing, event, signature, stand_fixture
from tests.support.vendor import Reply
from tests.unit.test_web_auth import SECRET as JWT_SECRET
from tests.unit.test_web_auth import token

billing: Any = stand_fixture()

UPDATE = "q:pay:subscription_update"
NEEDED = {"REDIS_URL": "redis://127.0.0.1:1/", "WEBHOOK_SIGNING_SECRET": "invented"}


@pytest.mark.req("S3-91")
def test_a_start_without_the_secret_is_refused_and_takes_nothing(billing: Billing) -> None:
    billing.push(UPDATE, {"event_id": "stays"})
    program = billing.launch(WEBHOOK_SIGNING_SECRET="")
    assert program.wait(60) == 2
    (line,) = program.noise
    assert "WEBHOOK_SIGNING_SECRET: is needed" in line, "one clear line that names it"
    assert billing.redis.llen(UPDATE) == 1


@pytest.mark.req("S3-91")
def test_a_service_that_cannot_know_its_neighbour_is_refused_and_takes_nothing(billing: Billing) -> None:
    billing.push(UPDATE, {"event_id": "stays"})
    program = billing.launch("--roles", "payment")
    assert program.wait(60) == 2
    assert program.events("start_failed")[0]["message"].startswith("SUBSCRIPTION_SERVICE_URL: ")
    assert billing.redis.llen(UPDATE) == 1


@pytest.mark.req("S3-91")
@pytest.mark.parametrize(
    ("roles", "environment", "said"),
    [
        (None, {"REDIS_URL": ""}, "REDIS_URL"),
        ("subscription", {}, "PAYMENT_SERVICE_URL"),
        ("posts", {}, "choose among payment, subscription, doors, outbound, upkeep"),
        (None, {"SUBSCRIPTION_SERVICE_URL": "ftp://x"}, "SUBSCRIPTION_SERVICE_URL"),
        (None, {"PAYMENT_SERVICE_URL": "x"}, "PAYMENT_SERVICE_URL"),
        (None, {"WEBHOOK_TOLERANCE_SECONDS": "soon"}, "WEBHOOK_TOLERANCE_SECONDS"),
        (None, {"WEBHOOK_TOLERANCE_SECONDS": "0.5"}, "WEBHOOK_TOLERANCE_SECONDS"),
        (None, {"CARILLON_HTTP__HOST": "0.0.0.0"}, "JWT_SECRET_KEY"),  # noqa: S104 - that it is refused
        (None, {"CARILLON_GATEWAY__PAYMENTS": "maybe"}, "gateway.payments"),
        (None, {"CARILLON_BILLING__PLANS__GOLD__AMOUNT": "dear"}, "billing.plans"),
    ],
)
def test_what_cannot_work_refuses_the_start(roles: str | None, environment: dict[str, str], said: str) -> None:
    def start() -> None:
        settings = load("billing", environ={**NEEDED, **environment})
        named, services = chosen(roles, [settings])
        Program(settings, named, services=services)

    with pytest.raises(ConfigurationError, match=said):
        start()


@pytest.mark.req("S3-91", "S3-72", "S3-58")
def test_the_variables_and_their_defaults() -> None:
    named = {
        "REDIS_URL": "redis://r/1",
        "DATABASE_URL": "postgresql://d/billing",
        "WEBHOOK_SIGNING_SECRET": "secret",
        "WEBHOOK_TOLERANCE_SECONDS": "60",
        "SUBSCRIPTION_SERVICE_URL": "http://s",
        "PAYMENT_SERVICE_URL": "http://p",
        "SERVICE_TOKEN": "token",
    }
    settings = load("billing", environ=named)
    assert settings.billing is not None
    assert (settings.redis.url, settings.ledger.url) == ("redis://r/1", "postgresql://d/billing")
    assert (settings.billing.signing_secret, settings.billing.tolerance_seconds) == ("secret", 60)
    assert (settings.billing.subscription_url, settings.billing.payment_url) == ("http://s", "http://p")
    plain = load("billing", environ={name: named[name] for name in ("REDIS_URL", "WEBHOOK_SIGNING_SECRET")})
    assert plain.billing is not None
    assert (plain.billing.tolerance_seconds, plain.billing.webhook_timeout_seconds) == (300, 30)


@pytest.mark.req("S3-16", "S3-17", "S3-18")
def test_the_policies_are_the_documents() -> None:
    settings = load("billing", environ={"REDIS_URL": "redis://r", "WEBHOOK_SIGNING_SECRET": "s"})
    policies = queue_policies(settings.queue)
    common, careful = (5, 60, 2.0, 3600, 10, 120, 300), (3, 60, 2.0, 600, 5, 120, 240)
    for queue in QUEUES:
        found = policies[queue]
        expected = careful if queue in ("q:sub:trial_payment", "q:pay:refund_initiation") else common
        assert (
            found.max_retries,
            found.base_delay_seconds,
            found.backoff_multiplier,
            found.max_delay_seconds,
            found.jitter_seconds,
            found.lock_ttl_seconds,
            found.visibility_timeout_seconds,
        ) == expected, queue


@pytest.mark.req("S3-58", "S3-71", "S3-72", "S3-91")
def test_patience_and_tolerance_are_what_they_are_set_to(billing: Billing) -> None:
    """A receiver that never answers is a failed run; a tolerance of seconds refuses what the default takes."""
    gate = threading.Event()
    billing.subscription_stub.answer(Reply(gate=gate), Reply(gate=gate))
    program = billing.start(
        SUBSCRIPTION_SERVICE_URL=billing.subscription_stub.url,
        WEBHOOK_TOLERANCE_SECONDS="30",
        CARILLON_BILLING__WEBHOOK_TIMEOUT_SECONDS="0.5",
        CARILLON_BILLING__IMMEDIATE_TIMEOUT_SECONDS="0.5",
    )
    billing.push(UPDATE, {"id": "hangs", "event_id": "hangs"})
    entries = billing.told("hangs", 2)
    assert entries[-2]["status"] == "retry"
    assert "Undelivered: " in entries[-2]["info"]["error"]
    billing.subscription_stub.wait_for(3)
    billing.until_idle()
    gate.set()
    subscription_id = billing.create()
    assert billing.deliver(event("payment_old_1", subscription_id), late=120).status == 400
    assert billing.deliver(event("payment_old_1", subscription_id), late=-120).status == 400
    assert billing.deliver(event("payment_old_1", subscription_id)).status == 200
    program.terminate()
    assert program.wait(60) == 0


def test_people_see_their_own_and_services_prove_themselves_otherwise(billing: Billing) -> None:
    program = billing.start(JWT_SECRET_KEY=JWT_SECRET)
    client, path = billing.client(program), "/v1/subscriptions"

    def bearer(sub: str, role: str = "user") -> dict[str, str]:
        return {"Authorization": f"Bearer {token(iss=None, aud=None, sub=sub, role=role)}"}

    body = {"plan_id": "basic", "user_id": "ada"}
    assert client.call("POST", path, body).status == 401
    assert client.call("POST", path, body, bearer("bob")).status == 403
    made = client.call("POST", path, body, bearer("ada"))
    assert made.status == 201
    own = f"{path}/{made.body['id']}"
    # Nobody's token was needed on the way: the service token and the signature are proof enough.
    billing.until(lambda: client.get(own, bearer("ada")).body["status"] == "active", what="the payment's report")
    assert client.get(own, bearer("bob")).status == 404
    assert client.get(own, bearer("root", "admin")).status == 200
    assert client.call("POST", f"{own}/plan", {"plan_id": "pro", "charge": False}, bearer("ada")).status == 403
    assert client.get("/v1/usage?user_id=ada", bearer("bob")).status == 403
    for admins in ("/v1/refunds?transaction_id=t", "/v1/payments/t", "/ops/queues"):
        assert client.get(admins, bearer("ada")).status == 403


@pytest.mark.req("S3-91")
def test_nothing_secret_is_said(billing: Billing) -> None:
    program = billing.start(SERVICE_TOKEN="token-that-nobody-may-see", WEBHOOK_SIGNING_SECRET="secret-nobody-may-see")
    body = json.dumps(event("payment_x_1", "s")).encode()
    billing.deliver(body, timestamp="1", signature=signature(body, 1, "secret-nobody-may-see"))
    subscription_id = billing.create()
    billing.until_status(subscription_id, "active")
    program.terminate()
    assert program.wait(60) == 0
    said = program.tail(10_000)
    assert "nobody-may-see" not in said
    # Nothing is left in anybody's hands.
    assert [key for key in map(str, billing.redis.keys("*")) if ":processing" in key or key.startswith("lock:")] == []
