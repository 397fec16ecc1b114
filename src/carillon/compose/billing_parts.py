"""What the two billing services are built from: how each reaches the other, signs for it and verifies it."""

import hmac
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum

from carillon.blueprints.billing.gateway import GatewayRules, MockGateway
from carillon.blueprints.billing.payment import PaymentRules, Payments
from carillon.blueprints.billing.relay import Relay
from carillon.blueprints.billing.store import BillingStore
from carillon.blueprints.billing.subscription import Neighbour, Subscriptions
from carillon.blueprints.billing.webhook_receiver import Verify
from carillon.blueprints.billing.webhooks import Post, Response, Sign, Webhooks
from carillon.config.billing import Billing
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Clock, Observer
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest
from carillon.providers.secret import Secret
from carillon.providers.webhook.signing import sign_x_webhook, verify_x_webhook
from carillon.system import new_id

_USER_AGENT = "Carillon"
_TOKEN_PURPOSE = b"carillon/billing/service-token"


class BillingRole(StrEnum):
    """Which of the two services a process is; both by default."""

    PAYMENT = "payment"
    SUBSCRIPTION = "subscription"


class Neighbours:
    """Where each service is: where the settings say, else in this process."""

    def __init__(self, billing: Billing, services: frozenset[str]) -> None:
        self.own: Callable[[], str] = lambda: ""
        """The address of this process, which is known once it listens."""
        self._payment = billing.payment_url.rstrip("/")
        self._subscription = billing.subscription_url.rstrip("/")
        if BillingRole.PAYMENT in services:
            _refuse_unknown(BillingRole.SUBSCRIPTION, "SUBSCRIPTION_SERVICE_URL", self._subscription, services)
        if BillingRole.SUBSCRIPTION in services:
            _refuse_unknown(BillingRole.PAYMENT, "PAYMENT_SERVICE_URL", self._payment, services)

    def payment(self) -> str:
        return self._payment or self.own()

    def subscription(self) -> str:
        return self._subscription or self.own()


def _refuse_unknown(service: BillingRole, variable: str, url: str, services: frozenset[str]) -> None:
    if service not in services and not url:
        raise ConfigurationError(f"{variable}: say where the {service} service is, which is not in this process")


def service_token(billing: Billing) -> str:
    """What services show each other; both know the signing secret, so both can make the same token of it."""
    return billing.service_token or hmac.digest(billing.signing_secret.encode(), _TOKEN_PURPOSE, "sha256").hex()


def verifier(billing: Billing, clock: Clock) -> Verify:
    secret = Secret(billing.signing_secret)

    def verify(headers: Sequence[tuple[str, str]], body: bytes) -> str:
        return verify_x_webhook(
            [secret], headers, body, now=clock.wall(), tolerance_seconds=billing.tolerance_seconds
        ).value

    return verify


def _signer(billing: Billing) -> Sign:
    secret = Secret(billing.signing_secret)
    return lambda timestamp, body: sign_x_webhook(secret, timestamp, body)


def _poster(http: HttpClient) -> Post:
    async def post(url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Response:
        answer = await http.post(HttpRequest(url=url, body=body, headers=headers, timeout_seconds=seconds))
        if not isinstance(answer, HttpAnswer):
            return Response(None, answer.error)
        return Response(answer.status, "" if answer.ok else answer.excerpt())

    return post


class Building:
    """The two services of one process, over what they share."""

    def __init__(
        self, settings: Settings, billing: Billing, store: BillingStore, *, http: HttpClient, relay: Relay, clock: Clock
    ) -> None:
        self._settings = settings
        self._billing = billing
        self._store = store
        self._post = _poster(http)
        self._relay = relay
        self._clock = clock

    def webhooks(self, where: Callable[[], str], observer: Observer) -> Webhooks:
        return Webhooks(
            self._post,
            _signer(self._billing),
            where,
            clock=self._clock,
            observer=observer,
            user_agent=_USER_AGENT,
        )

    def payments(self, webhooks: Webhooks) -> Payments:
        gateway = self._settings.gateway
        rules = GatewayRules(
            payments=gateway.payments,
            refunds=gateway.refunds,
            declined=[Decimal(str(amount)) for amount in gateway.declined_amounts],
            delay_seconds=gateway.delay_seconds,
        )
        return Payments(
            self._store,
            MockGateway(rules, self._clock),
            self._relay,
            webhooks,
            clock=self._clock,
            ids=new_id,
            rules=PaymentRules(
                webhook_seconds=self._billing.webhook_timeout_seconds,
                immediate_seconds=self._billing.immediate_timeout_seconds,
            ),
        )

    def subscriptions(self, where: Callable[[], str]) -> Subscriptions:
        neighbour = Neighbour(
            post=self._post,
            where=where,
            token=service_token(self._billing),
            seconds=self._billing.payment_timeout_seconds,
        )
        return Subscriptions(self._store, self._relay, neighbour, self._billing.plans, clock=self._clock, ids=new_id)
