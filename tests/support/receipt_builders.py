"""Receipts and the routes they are about, for tests of the ledger."""

from typing import Any

from carillon.domain.claims import Claim, Settlement
from carillon.domain.receipts import Receipt, ReceiptKind, ReceiptRules
from carillon.domain.verdicts import Finish
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import PROVIDER, enrolment, note, route, want

SECOND = "second"
RULES = ReceiptRules(chains={"email": (PROVIDER, SECOND)})
ALONE = ReceiptRules(chains={"email": (PROVIDER,)})


def receipt(kind: ReceiptKind, message: str | None = "m-1", **changes: Any) -> Receipt:
    plain: dict[str, Any] = {"provider": PROVIDER, "kind": kind, "provider_message_id": message}
    return Receipt(**(plain | changes))


def failed(message: str | None = "m-1", **changes: Any) -> Receipt:
    return receipt(ReceiptKind.FAILED, message, **{"classification": "30005", "reason": "unknown handset", **changes})


def delivered(message: str | None = "m-1", **changes: Any) -> Receipt:
    return receipt(ReceiptKind.DELIVERED, message, **changes)


def bounced(message: str | None = "m-1", **changes: Any) -> Receipt:
    return receipt(ReceiptKind.BOUNCED, message, **{"classification": "hard", "recipient_gone": True, **changes})


def sent_as(claim: Claim, message: str, provider: str = PROVIDER) -> Settlement:
    return Settlement(claim=claim, verdict=Finish(), note=note(provider=provider, provider_message_id=message))


async def publish(ledger: Ledger, message: str = "m-1", **changes: Any) -> Claim:
    """Enrol a route to ann and let the first provider send it under this id."""
    fields = changes.pop("route", {})
    await ledger.enrol([enrolment(route("ann", **fields), **changes)])
    (claim,) = await ledger.claim([want()], 1, "worker")
    await ledger.settle([sent_as(claim, message)])
    return claim


async def resend(ledger: Ledger, message: str, provider: str = SECOND) -> Claim:
    """Let a provider send what is due with it."""
    (claim,) = await ledger.claim([want(provider=provider)], 1, "worker")
    await ledger.settle([sent_as(claim, message, provider)])
    return claim


async def effect(ledger: Ledger, *receipts: Receipt, rules: ReceiptRules = RULES) -> str:
    """What the last of the receipts did, each in a call of its own."""
    for each in receipts:
        (taken,) = await ledger.take_receipts([each], rules)
    return str(taken.effect)
