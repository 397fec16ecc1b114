"""Receipts in any order and number: the invariants of a route after each."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain import receipts as deciding
from carillon.domain.notifications import Status
from carillon.domain.receipts import (
    ChangingRoute,
    Effect,
    Receipt,
    ReceiptKind,
    ReceiptRules,
    apply_receipt,
    suppression_for,
)

CHAIN = ("first", "second", "third")
RULES = ReceiptRules(chains={"sms": CHAIN})
PROGRESS = ("queued", "sent", "delivered", "opened", "clicked")
TERMINAL = {Status.DEAD_LETTER, Status.SKIPPED}

receipts = st.builds(
    Receipt,
    provider=st.sampled_from(CHAIN),
    kind=st.sampled_from(ReceiptKind),
    provider_message_id=st.sampled_from(["first-1", "second-2", "third-3", "third-4", "nobody's"]),
    recipient_gone=st.booleans(),
)


def published(**changes: object) -> ChangingRoute:
    plain: dict[str, object] = {
        "notification_id": "n",
        "route_id": "sms:x",
        "channel": "sms",
        "lane": 1,
        "policy": "*/*",
        "provider": "first",
        "provider_message_id": "first-1",
        "status": Status.PUBLISHED,
        "attempt_count": 1,
        "max_attempts": 4,
        "provider_since": 0,
        "held": False,
        "receipt": None,
        "delivered": False,
        "address": "+1",
        "tenant_id": "t",
        "user_id": "u",
    }
    return ChangingRoute(**(plain | changes))  # type: ignore[arg-type]


def resend(route: ChangingRoute) -> None:
    """What a worker does with a route that is due: it sends under a new id."""
    route.attempt_count += 1
    route.status, route.provider_message_id = Status.PUBLISHED, f"{route.provider}-{route.attempt_count}"


def rank(word: str | None) -> int:
    return PROGRESS.index(word) if word in PROGRESS else -1


def took(route: ChangingRoute, receipt: Receipt) -> Effect:
    named = receipt.provider_message_id
    return apply_receipt(receipt, route, RULES, known=named == route.provider_message_id, strikes=0)


@pytest.mark.req("S2-80")
@given(st.lists(st.tuples(receipts, st.booleans()), max_size=40))
def test_whatever_comes(told: list[tuple[Receipt, bool]]) -> None:
    route = published()
    failed: set[str | None] = set()
    for receipt, work in told:
        before = msgspec.structs.replace(route)
        effect = took(route, receipt)
        if before.status in TERMINAL:
            assert route.status is before.status
        assert route.delivered >= before.delivered
        if route.provider_message_id == before.provider_message_id and not route.reopened:
            assert rank(route.receipt) >= rank(before.receipt) or route.receipt == "complained"
        if effect in (Effect.FAILED_OVER, Effect.RETRIED):
            assert before.provider_message_id not in failed, "one message failed over twice"
            assert not before.delivered
            failed.add(before.provider_message_id)
            assert CHAIN.index(route.provider) >= CHAIN.index(before.provider)
            assert route.max_attempts > route.attempt_count
        if effect is Effect.IGNORED:
            assert route == before
        if work and route.status is Status.FAILED:
            resend(route)
            route.reopened = False
    assert route.attempt_count <= 4


@pytest.mark.req("S2-80")
def test_without_ranks_words_would_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Receipt(provider="first", kind=ReceiptKind.SENT, provider_message_id="first-1")
    route = published(receipt="delivered")
    took(route, late)
    assert route.receipt == "delivered"
    monkeypatch.setattr(deciding, "_RANKS", {ReceiptKind.SENT: 1})
    took(route, late)
    assert route.receipt == "sent"


@pytest.mark.parametrize("kind", [ReceiptKind.COMPLAINED, ReceiptKind.UNSUBSCRIBED])
def test_a_persons_word_counts_also_while_a_worker_holds_the_route(kind: ReceiptKind) -> None:
    route = published(status=Status.FAILED, held=True)
    receipt = Receipt(provider="first", kind=kind, provider_message_id="first-9")
    assert took(route, receipt) is not Effect.WAITING
    asked = suppression_for(receipt, route, RULES, 0)
    assert asked is not None
    assert asked.tenant_id == "t"


@pytest.mark.parametrize(("strikes", "dead"), [(1, False), (2, True), (3, True)])
def test_a_dead_address_is_suppressed_for_its_tenant_after_its_strikes(strikes: int, dead: bool) -> None:  # noqa: FBT001 - a row of a table
    receipt = Receipt(provider="third", kind=ReceiptKind.BOUNCED, recipient_gone=True)
    asked = suppression_for(receipt, published(provider="third"), RULES, strikes)
    assert (asked is not None) == dead
    assert asked is None or (asked.tenant_id, asked.kind, asked.seconds) == ("t", "invalid", 30 * 86_400.0)
