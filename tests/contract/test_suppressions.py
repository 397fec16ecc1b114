"""Suppressions belong to a tenant, end by themselves, and every place agrees about them; each clause is needed."""

import asyncio
from typing import Any

import msgspec
import pytest

from carillon.domain.admin import RedrivePlan
from carillon.domain.claims import Claim, Settlement
from carillon.domain.decide import barred
from carillon.domain.notifications import Accepted, Duplicate
from carillon.domain.receipts import ReceiptKind, ReceiptRules
from carillon.domain.suppressions import Suppression, SuppressionKind, SuppressionTerms
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import REDRIVE, bury, enrolment, finish, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_mutants import clauses_needed
from tests.support.receipt_builders import ALONE, RULES, bounced, effect, publish, receipt

engine = engine_fixture()
ledger = ledger_fixture()

ANN = "ann@example.com"
DAY_MS = 86_400_000
SHARING = SuppressionTerms(share_bounces=True)


def suppression(tenant: str = "", seconds: float | None = None, address: str = ANN, **more: Any) -> Suppression:
    return Suppression("email", address, tenant, "asked", "operator", seconds, **more)


async def skipped(ledger: Ledger, tenant: str | None, **changes: Any) -> bool:
    """Whether a new route of this tenant to ann is skipped."""
    (answer,) = await ledger.enrol([enrolment(tenant_id=tenant, **changes)])
    assert isinstance(answer, Accepted)
    return bool(answer.suppressed)


async def claims(ledger: Ledger) -> dict[str | None, Claim]:
    """What is due, by tenant."""
    return {claim.tenant_id: claim for claim in await ledger.claim([want()], 100, "w")}


async def kept(ledger: Ledger) -> list[tuple[str, str]]:
    """Tenant and kind of everything in force."""
    rows, total = await ledger.suppressions({}, 100, 0)
    assert total == len(rows)
    return sorted((row["tenant_id"], row["kind"]) for row in rows)


async def test_another_tenants_suppression_binds_nobody_else_when_it_is_enrolled(ledger: Ledger) -> None:
    await ledger.suppress([suppression("acme")])
    assert [await skipped(ledger, tenant) for tenant in ("acme", "globex", None)] == [True, False, False]


async def test_one_of_no_tenant_binds_everybody_when_it_is_enrolled(ledger: Ledger) -> None:
    await ledger.suppress([suppression()])
    assert [await skipped(ledger, tenant) for tenant in ("acme", "globex", None)] == [True, True, True]


async def test_another_tenants_suppression_binds_nobody_else_when_it_is_claimed(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(tenant_id=tenant) for tenant in ("acme", "globex", None)])
    await ledger.suppress([suppression("acme")])
    found = await claims(ledger)
    assert {tenant: claim.suppressed for tenant, claim in found.items()} == {"acme": True, "globex": False, None: False}


async def test_a_refusal_suppresses_for_the_tenant_of_the_message(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(tenant_id=tenant) for tenant in ("acme", "globex")])
    found = await claims(ledger)
    await ledger.settle([bury(found["acme"], suppress=True)])
    assert [await skipped(ledger, tenant) for tenant in ("acme", "globex", None)] == [True, False, False]
    row = await engine.only("suppressions")
    assert (row["tenant_id"], row["kind"], row["source"], row["reason"]) == (
        "acme",
        "bounced",
        "delivery",
        "recipient_gone",
    )
    assert row["expires_at"] == row["created_at"] + 90 * DAY_MS


async def test_what_stopped_a_route_is_kept_with_it_and_answered(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([suppression("acme", 60.0, kind=SuppressionKind.INVALID)])
    known = await engine.only("suppressions")
    (answer,) = await ledger.enrol([enrolment(tenant_id="acme")])
    assert isinstance(answer, Accepted)
    (stopped,) = answer.suppressed
    assert (stopped.route_id, stopped.channel) == ("email:user:ann", "email")
    held_by = stopped.suppression
    assert (held_by.suppression_id, held_by.kind) == (known["suppression_id"], "invalid")
    assert held_by.until_ms == known["expires_at"]
    row = await engine.only("routes")
    assert (row["status"], row["last_error_message"]) == ("skipped", "the address is suppressed")
    assert (row["suppression_id"], row["suppression_kind"], row["suppressed_until"]) == (
        known["suppression_id"],
        "invalid",
        known["expires_at"],
    )


async def test_it_is_kept_also_when_it_began_while_the_route_waited(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(tenant_id="acme")])
    await ledger.suppress([suppression("acme", 60.0)])
    known = await engine.only("suppressions")
    claim = (await claims(ledger))["acme"]
    held_by, verdict = claim.suppression(), barred(claim)
    assert held_by is not None
    assert verdict is not None
    assert (held_by.suppression_id, held_by.until_ms) == (known["suppression_id"], known["expires_at"])
    await ledger.settle([Settlement(claim=claim, verdict=verdict)])
    row = await engine.only("routes")
    assert (row["status"], row["suppression_id"], row["suppressed_until"]) == (
        "dead_letter",
        known["suppression_id"],
        known["expires_at"],
    )


async def test_a_repeat_is_answered_as_the_first(ledger: Ledger) -> None:
    await ledger.suppress([suppression("acme", 60.0)])
    given = enrolment(route("bob"), route(), tenant_id="acme", idempotency_key="k")
    again = msgspec.structs.replace(
        given, notification=msgspec.structs.replace(given.notification, notification_id="n-again")
    )
    (first,) = await ledger.enrol([given])
    (own,) = await ledger.enrol([given])
    (other,) = await ledger.enrol([again])
    assert isinstance(first, Accepted)
    assert isinstance(other, Duplicate)
    assert [each.route_id for each in first.suppressed] == ["email:user:ann"]
    assert own == first
    assert other.suppressed == first.suppressed
    (waiting,) = await ledger.enrol_claimed([given], "me", 60.0)
    assert waiting.enrolled == first
    assert len(waiting.claims) <= 1


async def test_of_two_that_hold_the_longer_one_counts(ledger: Ledger) -> None:
    for own, shared in ((60.0, 90.0), (90.0, 60.0), (60.0, None), (None, 60.0)):
        address = f"{own}-{shared}@example.com".lower()
        await ledger.suppress([suppression("acme", own, address), suppression("", shared, address)])
        (answer,) = await ledger.enrol([enrolment(route(address=address), tenant_id="acme")])
        assert isinstance(answer, Accepted)
        rows, _ = await ledger.suppressions({"address": address, "tenant_id": "acme"}, 10, 0)
        ends = [row["expires_at"] for row in rows]
        longest = None if None in ends else max(ends)
        assert answer.suppressed[0].suppression.until_ms == longest
        looked = await ledger.suppression_in_force("email", address, "acme", None)
        assert looked is not None
        assert looked["expires_at"] == longest


async def test_what_is_due_after_the_end_is_not_skipped(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([suppression("acme", 3600.0)])
    end = (await engine.only("suppressions"))["expires_at"]
    for due, wanted in ((end - 1, True), (end, False), (end + 1, False), (1, True), (None, True)):
        assert await skipped(ledger, "acme", scheduled_for_ms=due) is wanted, due
        looked = await ledger.suppression_in_force("email", ANN, "acme", due)
        assert (looked is not None) is wanted, due


async def test_two_tenants_suppress_at_once(engine: Engine, ledger: Ledger) -> None:
    async with engine.ledger() as other:
        given = [
            [suppression(tenant, float(seconds)) for tenant in order]
            for seconds in range(1000, 1020)
            for order in (("acme", "globex"), ("globex", "acme"))
        ]
        await asyncio.gather(*((ledger, other)[at % 2].suppress(each) for at, each in enumerate(given)))
        rows = await engine.rows("suppressions")
        assert sorted(row["tenant_id"] for row in rows) == ["acme", "globex"]
        assert len({row["suppression_id"] for row in rows}) == 2
        for row in rows:
            assert row["expires_at"] - row["created_at"] >= 1_019_000


async def test_lifting_one_leaves_the_other(ledger: Ledger) -> None:
    await ledger.suppress([suppression(tenant) for tenant in ("acme", "globex", "")])
    assert await ledger.unsuppress("email", ANN, "acme")
    assert await kept(ledger) == [("", "manual"), ("globex", "manual")]
    assert await skipped(ledger, "acme"), "everybody's still holds"
    assert await ledger.unsuppress("email", ANN, "")
    assert [await skipped(ledger, tenant) for tenant in ("acme", "globex", None)] == [False, True, False]


async def test_a_number_is_never_used_again(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([suppression("acme", 10.0)])
    first = (await engine.only("suppressions"))["suppression_id"]
    await ledger.suppress([suppression("acme", 20.0)])
    assert (await engine.only("suppressions"))["suppression_id"] == first, "a longer one is the same"
    await ledger.unsuppress("email", ANN, "acme")
    await ledger.suppress([suppression("acme")])
    assert (await engine.only("suppressions"))["suppression_id"] > first
    assert await ledger.suppression(first) is None


async def test_a_tenant_sees_its_own_and_of_one_address_what_binds_it(ledger: Ledger) -> None:
    await ledger.suppress([suppression(tenant) for tenant in ("acme", "globex", "")])
    await ledger.suppress([suppression("", None, "bob@example.com")])
    rows, total = await ledger.suppressions({"tenant_id": "acme"}, 10, 0)
    assert (total, [row["tenant_id"] for row in rows]) == (1, ["acme"])
    rows, _ = await ledger.suppressions({"tenant_id": "acme", "address": ANN}, 10, 0)
    assert sorted(row["tenant_id"] for row in rows) == ["", "acme"]
    rows, _ = await ledger.suppressions({"kind": "bounced"}, 10, 0)
    assert rows == []


def once(**terms: Any) -> ReceiptRules:
    return ReceiptRules(chains=ALONE.chains, bounces_before_silence=1, suppressions=SuppressionTerms(**terms))


async def test_receipts_suppress_for_their_tenant(ledger: Ledger) -> None:
    told = {
        "bounced": bounced("m-0"),
        "complained": receipt(ReceiptKind.COMPLAINED, "m-1"),
        "unsubscribed": receipt(ReceiptKind.UNSUBSCRIBED, "m-2"),
    }
    for number, (kind, each) in enumerate(told.items()):
        await publish(ledger, f"m-{number}", tenant_id=kind, route={"address": f"{kind}@example.com"})
        await effect(ledger, each, rules=once())
    assert await kept(ledger) == [(kind, kind) for kind in sorted(told)]


async def test_shared_bounces_bind_everybody_and_complaints_do_not(ledger: Ledger) -> None:
    await publish(ledger, "m-1", tenant_id="acme")
    await effect(ledger, bounced("m-1"), rules=once(share_bounces=True))
    assert await kept(ledger) == [("", "bounced")]
    assert await skipped(ledger, "globex")
    await publish(ledger, "m-2", tenant_id="acme", route={"address": "bob@example.com"})
    await effect(ledger, receipt(ReceiptKind.COMPLAINED, "m-2"), rules=once(share_bounces=True))
    assert await kept(ledger) == [("", "bounced"), ("acme", "complained")]


async def test_a_refusal_that_is_a_bounce_is_shared_too(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(tenant_id="acme")])
    await ledger.settle([bury((await claims(ledger))["acme"], suppress=True, terms=SHARING)])
    assert await skipped(ledger, "globex")


@pytest.mark.parametrize("share", [False, True])
async def test_bounces_of_one_tenant_are_strikes_of_another_only_where_they_are_shared(
    ledger: Ledger,
    share: bool,  # noqa: FBT001 - a row of a table
) -> None:
    # What bounced goes to the second provider, so that the first has nothing due but what is published next.
    rules = ReceiptRules(chains=RULES.chains, suppressions=SuppressionTerms(share_bounces=share))
    for number, tenant in enumerate(("acme", "globex")):
        await publish(ledger, f"m-{number}", tenant_id=tenant)
        await effect(ledger, bounced(f"m-{number}"), rules=rules)
    assert await kept(ledger) == ([("", "bounced")] if share else [])
    if not share:
        await publish(ledger, "m-2", tenant_id="acme")
        await effect(ledger, bounced("m-2"), rules=rules)
        assert await kept(ledger) == [("acme", "bounced")]


async def test_refused_numbers_of_two_tenants_do_not_count_together_where_bounces_are_shared(ledger: Ledger) -> None:
    rules = ReceiptRules(chains={"sms": RULES.chains["email"]}, suppressions=SHARING)
    number = {"channel": "sms", "address": "+4915112345678"}
    for at, tenant in enumerate(("acme", "globex")):
        await publish(ledger, f"m-{at}", tenant_id=tenant, route=number)
        await effect(ledger, bounced(f"m-{at}"), rules=rules)
    assert await kept(ledger) == []
    await publish(ledger, "m-2", tenant_id="globex", route=number)
    await effect(ledger, bounced("m-2"), rules=rules)
    assert await kept(ledger) == [("globex", "invalid")]


async def dead_letters_of(ledger: Ledger, *tenants: str) -> None:
    await ledger.enrol([enrolment(tenant_id=tenant) for tenant in tenants])
    await ledger.settle([bury(claim) for claim in (await claims(ledger)).values()])


async def test_a_redrive_leaves_what_is_suppressed(engine: Engine, ledger: Ledger) -> None:
    await dead_letters_of(ledger, "acme", "globex")
    await ledger.suppress([suppression("acme")])
    counts = await ledger.failed_counts({})
    assert (counts.total, counts.suppressed) == (2, 1)
    assert (await ledger.redrive({}, RedrivePlan(), 10, REDRIVE)).count == 1
    assert list(await claims(ledger)) == ["globex"]
    await ledger.unsuppress("email", ANN, "acme")
    assert (await ledger.failed_counts({})).suppressed == 0
    assert (await ledger.redrive({}, RedrivePlan(), 10, REDRIVE)).count == 1
    again = (await claims(ledger))["acme"]
    assert not again.suppressed
    await ledger.settle([finish(again)])
    assert {row["suppression_id"] for row in await engine.rows("routes")} == {None}


async def test_a_redriven_route_forgets_what_stopped_it(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(tenant_id="acme")])
    await ledger.suppress([suppression("acme")])
    claim = (await claims(ledger))["acme"]
    verdict = barred(claim)
    assert verdict is not None
    await ledger.settle([Settlement(claim=claim, verdict=verdict)])
    await ledger.unsuppress("email", ANN, "acme")
    await ledger.redrive({}, RedrivePlan(), 10, REDRIVE)
    row = await engine.only("routes")
    assert (row["status"], row["suppression_id"], row["suppression_kind"], row["suppressed_until"]) == (
        "failed",
        None,
        None,
        None,
    )


test_each_clause_is_needed = clauses_needed(
    {
        "enrol for any tenant": (
            test_another_tenants_suppression_binds_nobody_else_when_it_is_enrolled,
            {"enrol": ("AND s.tenant_id IN ('', given.tenant_id)", "")},
            {"enrol_route": ("AND s.tenant_id IN ('', :tenant_id)", "")},
        ),
        "enrol without those of no tenant": (
            test_one_of_no_tenant_binds_everybody_when_it_is_enrolled,
            {"enrol": ("s.tenant_id IN ('', given.tenant_id)", "s.tenant_id = given.tenant_id")},
            {"enrol_route": ("s.tenant_id IN ('', :tenant_id)", "s.tenant_id = :tenant_id")},
        ),
        "claim for any tenant": (
            test_another_tenants_suppression_binds_nobody_else_when_it_is_claimed,
            {"claim": ("AND s.tenant_id IN ('', n.tenant_id)", "")},
            {"claim_candidates": ("AND s.tenant_id IN ('', n.tenant_id)", "")},
        ),
        "as of now, whenever it is due": (
            test_what_is_due_after_the_end_is_not_skipped,
            {"enrol": ("greatest(clock.now, to_timestamp(given.scheduled_for_ms / 1000.0))", "clock.now")},
            {"enrol_route": ("max(:now, coalesce(:scheduled_for_ms, :now))", ":now")},
        ),
        "the shorter one": (
            test_of_two_that_hold_the_longer_one_counts,
            {
                "enrol": (
                    "> (coalesce(s.expires_at, 'infinity'), s.tenant_id)",
                    "< (coalesce(s.expires_at, 'infinity'), s.tenant_id)",
                )
            },
            {"enrol_route": ("s.expires_at IS NULL DESC, s.expires_at DESC", "s.expires_at")},
        ),
        "a row for all tenants": (
            test_lifting_one_leaves_the_other,
            {"unsuppress": ("AND tenant_id = :tenant_id", "AND :tenant_id::text IS NOT NULL")},
            {"unsuppress": ("AND tenant_id = :tenant_id", "AND :tenant_id IS NOT NULL")},
        ),
        "a redrive of anything": (
            test_a_redrive_leaves_what_is_suppressed,
            {"redrive": ("AND NOT EXISTS (", "AND NOT FALSE AND NULL IS NULL OR EXISTS (")},
            {"redrive": ("AND NOT EXISTS (", "AND 1 OR EXISTS (")},
        ),
        "a repeat that forgets": (
            test_a_repeat_is_answered_as_the_first,
            {"winners": ("AND r.suppression_id IS NOT NULL", "AND FALSE")},
            {"winners": ("AND r.suppression_id IS NOT NULL", "AND 0")},
        ),
        "a list of all tenants": (
            test_a_tenant_sees_its_own_and_of_one_address_what_binds_it,
            {"suppressions": ("OR (:with_shared::boolean AND s.tenant_id = '')", "OR :with_shared::boolean")},
            {"suppressions": ("OR (:with_shared AND s.tenant_id = '')", "OR :with_shared")},
        ),
    }
)
