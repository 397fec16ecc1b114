"""One attempt: what keeps it from happening, what the provider may do, and what is written down of it."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import pytest

from carillon.domain.breaker import Admission, BreakerPolicy, State
from carillon.domain.claims import Claim, Dispatch, Settlement
from carillon.domain.decide import suppression_after
from carillon.domain.groups import Groups
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.suppressions import Suppression, SuppressionKind, SuppressionTerms
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Verdict
from carillon.outbound import calls
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.leases import Leases
from tests.support.clocks import ManualClock
from tests.support.dispatches import claim
from tests.unit.test_outbound_leases import Unused

POLICY = RetryPolicy(max_attempts=6, base_delay_seconds=10.0, jitter="none", timeout_seconds=20.0)
SUPPRESSION = '{"suppression_id":7,"kind":"invalid","until_ms":null}'
CLAIM = claim(
    notification_id="n-1",
    route_id="email:user:ada",
    channel="email",
    recipient_ref="user:ada",
    lane=1,
    provider="first",
    message_json='{"text":"hi"}',
)


class Vendor:
    """A provider that answers as it was told to and remembers what it was asked."""

    def __init__(self, answer: Callable[[], Outcome]) -> None:
        self.answer = answer
        self.asked: list[Dispatch] = []

    async def send(self, dispatch: Dispatch) -> Outcome:
        self.asked.append(dispatch)
        return self.answer()

    async def aclose(self) -> None:
        """Nothing is held."""


class HangingVendor(Vendor):
    async def send(self, dispatch: Dispatch) -> Outcome:
        self.asked.append(dispatch)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets that event")


def broken() -> Outcome:
    raise IndexError("a bug of the adapter")


def says(outcome: Outcome) -> Vendor:
    return Vendor(lambda: outcome)


class Desk:
    """Attempts with two vendors in a chain, real breakers, and leases that time can run out of."""

    def __init__(
        self,
        first: Vendor,
        second: Vendor | None = None,
        policy: RetryPolicy = POLICY,
        *,
        give_back: bool = False,
        groups: Mapping[str, Groups] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.leases = Leases(Unused(), self.clock, lambda _: None, 30.0)
        vendors = {"first": first} if second is None else {"first": first, "second": second}
        policies = {"*": BreakerPolicy(failure_threshold=2, open_seconds=60.0)}
        self.breakers = MemoryBreakers(policies, self.clock, lambda _: None)
        self.attempts = Attempts(
            providers=vendors,
            breakers=self.breakers,
            leases=self.leases,
            rules=AttemptRules(
                {"email": tuple(vendors)},
                PolicyTable({"*/*": policy}),
                Lanes({"standard": Lane(rank=1, queue_name="standard")}),
                give_back=give_back,
                suppressions=SuppressionTerms(),
                groups=groups or {},
            ),
            clock=self.clock,
            dice=lambda: 0.5,
        )

    async def attempt(self, claim: Claim = CLAIM) -> Settlement:
        self.leases.take([claim], self.clock.monotonic())
        return await self.attempts.attempt(claim)

    async def break_provider(self, provider: str) -> None:
        for _ in range(2):
            await self.breakers.record(provider, ok=False)


async def test_a_sent_message_is_finished_with_its_note() -> None:
    vendor = says(Sent("vendor-1"))
    settlement = await Desk(vendor).attempt()
    assert settlement.verdict == Finish()
    assert settlement.note is not None
    assert (settlement.note.outcome, settlement.note.provider_message_id) == ("sent", "vendor-1")
    assert (settlement.note.provider, settlement.note.error) == ("first", None)
    (dispatch,) = vendor.asked
    assert dispatch.message is not None
    assert dispatch.message.text == "hi"
    assert dispatch.claim.idempotency_key == "n-1/email:user:ada"
    assert dispatch.timeout_seconds == 20.0


@pytest.mark.parametrize(
    ("outcome", "verdict", "classification"),
    [
        (Unavailable("503", "http_503"), Retry(10.0), "http_503"),
        (Throttled("429"), Defer(10.0), "throttled"),
        (Refused("400"), FailOver("second"), "refused"),
        (Unknown("silence", "timeout"), Retry(10.0), "timeout"),
    ],
)
async def test_what_did_not_arrive_is_decided_upon(outcome: Outcome, verdict: Verdict, classification: str) -> None:
    settlement = await Desk(says(outcome), says(Sent())).attempt()
    assert settlement.verdict == verdict
    assert settlement.note is not None
    assert settlement.note.classification == classification
    assert settlement.suppression is None


async def test_a_dead_address_is_suppressed_when_nobody_else_can_be_asked() -> None:
    claim = msgspec.structs.replace(CLAIM, address="a@example.org", tenant_id="acme")
    gone = Refused("gone", "smtp_550", recipient_gone=True)
    first = await Desk(says(gone), says(Sent())).attempt(claim)
    assert (first.verdict, first.suppression) == (FailOver("second"), None)
    forbidden = msgspec.structs.replace(POLICY, no_failover_for=["smtp_550"])
    assert (await Desk(says(gone), says(Sent()), forbidden).attempt(claim)).suppression is not None
    settlement = await Desk(says(gone)).attempt(claim)
    assert settlement.suppression == Suppression(
        "email", "a@example.org", "acme", "smtp_550", "delivery", 90 * 86_400.0, SuppressionKind.BOUNCED
    )
    assert isinstance(settlement.verdict, Bury)


@pytest.mark.parametrize(
    ("channel", "classification", "kind", "seconds"),
    [
        ("email", "smtp_550", "bounced", 90 * 86_400.0),
        ("email", "unsubscribed_address", "unsubscribed", None),
        ("email", "spam_reporting_address", "complained", None),
        ("sms", "not_mobile", "invalid", 30 * 86_400.0),
        ("sms", "opted_out", "unsubscribed", None),
        ("sms", "21610", "unsubscribed", None),
        ("push", "unregistered", "invalid", 30 * 86_400.0),
        ("webhook", "endpoint_gone", "invalid", 30 * 86_400.0),
    ],
)
@pytest.mark.parametrize("share", [False, True])
def test_what_a_refusal_suppresses(
    channel: str,
    classification: str,
    kind: str,
    seconds: float | None,
    share: bool,  # noqa: FBT001 - a row of a table
) -> None:
    claim = msgspec.structs.replace(CLAIM, address="a", channel=channel, tenant_id="acme")
    outcome = Refused("no", classification, recipient_gone=True)
    caused = suppression_after(claim, outcome, SuppressionTerms(share_bounces=share), POLICY, None)
    assert caused is not None
    assert (caused.kind, caused.seconds, caused.source) == (kind, seconds, "delivery")
    assert caused.tenant_id == ("" if share and kind == "bounced" else "acme")
    assert suppression_after(claim, Refused("no", classification), SuppressionTerms(), POLICY, None) is None
    assert suppression_after(claim, outcome, None, POLICY, None) is None
    # A person who wants no messages wants none from another vendor either; a dead address may be alive there.
    said_no = kind in {"unsubscribed", "complained"}
    assert (suppression_after(claim, outcome, SuppressionTerms(), POLICY, "second") is not None) == said_no


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"suppression_json": SUPPRESSION}, Bury("suppressed", "the address is suppressed")),
        ({"attempt": 7}, Bury("crash_loop", "abandoned by a worker 6 times without an outcome")),
    ],
)
async def test_some_claims_are_never_called(changes: dict[str, object], verdict: Verdict) -> None:
    vendor = says(Sent())
    settlement = await Desk(vendor).attempt(msgspec.structs.replace(CLAIM, **changes))
    assert (settlement.verdict, settlement.note, vendor.asked) == (verdict, None, [])


@pytest.mark.parametrize(
    ("on_unknown", "called"), [("retry", 1), ("fail_over", 1), ("bury", 0), ("wait_for_receipt", 0)]
)
async def test_an_abandoned_route_is_repeated_only_where_its_class_allows_it(on_unknown: str, called: int) -> None:
    vendor = says(Sent())
    desk = Desk(vendor, policy=msgspec.structs.replace(POLICY, on_unknown=on_unknown))
    settlement = await desk.attempt(msgspec.structs.replace(CLAIM, attempt=2, abandoned=True))
    assert len(vendor.asked) == called
    assert settlement.note is not None
    assert called or (settlement.note.outcome, settlement.note.classification) == ("unknown", "abandoned")


async def test_a_lease_that_ran_out_is_given_back_uncalled() -> None:
    vendor = says(Sent())
    desk = Desk(vendor)
    desk.leases.take([CLAIM], desk.clock.monotonic())
    desk.clock.now += 27.0
    settlement = await desk.attempts.attempt(CLAIM)
    assert (settlement.verdict, settlement.note, vendor.asked) == (Defer(0.0), None, [])


async def test_a_call_may_not_outlive_its_lease() -> None:
    vendor = says(Sent())
    desk = Desk(vendor)
    desk.leases.take([CLAIM], desk.clock.monotonic())
    desk.clock.now += 20.0
    await desk.attempts.attempt(CLAIM)
    assert vendor.asked[0].timeout_seconds == pytest.approx(7.0)


async def test_an_open_breaker_sends_the_route_to_the_next_provider() -> None:
    first, second = says(Sent("a")), says(Sent("b"))
    desk = Desk(first, second)
    await desk.break_provider("first")
    settlement = await desk.attempt()
    assert settlement.note is not None
    assert (settlement.note.provider, settlement.note.provider_message_id) == ("second", "b")
    assert first.asked == []


@pytest.mark.parametrize(
    ("on_open", "age", "verdict"),
    [
        ("defer", 0.0, Defer(1.5)),
        ("defer", 259_200.0, Bury("expired", "every provider stayed unavailable for too long")),
        ("bury", 0.0, Bury("circuit_open", "circuit breaker open: first")),
    ],
)
async def test_when_every_provider_is_open_nothing_is_spent(on_open: str, age: float, verdict: Verdict) -> None:
    first, second = says(Sent()), says(Sent())
    desk = Desk(first, second, msgspec.structs.replace(POLICY, on_open=on_open))
    await desk.break_provider("first")
    await desk.break_provider("second")
    settlement = await desk.attempt(msgspec.structs.replace(CLAIM, age_seconds=age))
    assert (settlement.verdict, settlement.note) == (verdict, None)
    assert first.asked + second.asked == []


@pytest.mark.req("P-570")
@pytest.mark.parametrize("together", [False, True])
async def test_a_failed_probe_spends_no_attempt_of_its_message(*, together: bool) -> None:
    vendor = says(Unavailable("503"))
    desk = Desk(vendor)
    last = msgspec.structs.replace(CLAIM, attempt=POLICY.budget)

    async def verdict() -> Verdict:
        if not together:
            return (await desk.attempt(last)).verdict
        desk.leases.take([last], desk.clock.monotonic())
        (settlement,) = await desk.attempts.attempt_many([last])
        return settlement.verdict

    await desk.break_provider("first")
    for _ in range(3):
        desk.clock.now += 61.0
        assert await verdict() == Defer(1.5)
    assert len(vendor.asked) == 3
    await desk.breakers.recovered("first")
    vendor.answer = Sent
    assert await verdict() == Finish()
    vendor.answer = lambda: Unavailable("503")
    assert isinstance(await verdict(), Bury), "the same claim, but its call is no probe any more"


async def test_no_message_becomes_a_dead_letter_while_another_one_probes() -> None:
    vendor = says(Sent())
    desk = Desk(vendor, policy=msgspec.structs.replace(POLICY, on_open="bury"))
    await desk.break_provider("first")
    assert isinstance((await desk.attempt()).verdict, Bury)
    desk.clock.now += 61.0
    assert await desk.breakers.admit("first") is Admission.PROBE
    assert (await desk.attempt()).verdict == Defer(1.5)
    assert vendor.asked == []


async def test_no_message_becomes_a_dead_letter_when_the_breaker_has_just_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vendor = says(Sent())
    desk = Desk(vendor, policy=msgspec.structs.replace(POLICY, on_open="bury"))
    await desk.break_provider("first")
    desk.clock.now += 61.0
    assert await desk.breakers.admit("first") is Admission.PROBE
    states = desk.breakers.states

    async def closed_meanwhile() -> dict[str, State]:
        await desk.breakers.record("first", ok=True)
        return await states()

    monkeypatch.setattr(desk.breakers, "states", closed_meanwhile)
    assert (await desk.attempt()).verdict == Defer(1.5)
    assert vendor.asked == []


@pytest.mark.parametrize("outcome", [Refused("bad number"), Throttled("429"), Sent()])
async def test_what_is_not_the_providers_fault_opens_no_breaker(outcome: Outcome) -> None:
    vendor = says(outcome)
    desk = Desk(vendor)
    for _ in range(20):
        await desk.attempt()
    assert len(vendor.asked) == 20


@pytest.mark.parametrize("outcome", [Unavailable("503"), Unknown("silence")])
async def test_what_is_the_providers_fault_opens_it(outcome: Outcome) -> None:
    vendor = says(outcome)
    desk = Desk(vendor)
    for _ in range(20):
        await desk.attempt()
    assert len(vendor.asked) == 2


async def test_a_providers_bug_ends_in_its_own_routes_history() -> None:
    settlement = await Desk(Vendor(broken)).attempt()
    assert settlement.note is not None
    assert settlement.note.classification == "provider_error"
    assert "IndexError" in (settlement.note.error or "")
    assert isinstance(settlement.verdict, Retry)


async def test_a_provider_that_forgets_its_deadline_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "EXTRA_SECONDS", 0.0)
    vendor = HangingVendor(Sent)
    settlement = await Desk(vendor, policy=msgspec.structs.replace(POLICY, timeout_seconds=0.01)).attempt()
    assert settlement.note is not None
    assert (settlement.note.outcome, settlement.note.classification) == ("unknown", "timeout")


@pytest.mark.parametrize("cutting_off", [True, False])
async def test_a_call_cut_off_by_shutdown_may_have_gone_out(*, cutting_off: bool) -> None:
    vendor = HangingVendor(Sent)
    desk = Desk(vendor)
    if cutting_off:
        desk.attempts.cut_off()
    task = asyncio.create_task(desk.attempt())
    while not vendor.asked:  # noqa: ASYNC110 - it is asked within a few turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    if not cutting_off:
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    note = (await task).note
    assert note is not None
    assert (note.outcome, note.classification) == ("unknown", "shutdown")


async def test_attempts_before_this_provider_do_not_count_against_it() -> None:
    claim = msgspec.structs.replace(CLAIM, attempt=3, attempts_before=2)
    assert (await Desk(says(Unavailable("503")), says(Sent())).attempt(claim)).verdict == Retry(40.0)
    spent = msgspec.structs.replace(CLAIM, attempt=4, attempts_before=2)
    assert (await Desk(says(Unavailable("503")), says(Sent())).attempt(spent)).verdict == FailOver("second", 80.0)
