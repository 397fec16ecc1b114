"""Turns over groups: nobody waits for a stranger, on every engine."""

import asyncio
from collections import Counter
from random import Random

import pytest

from carillon.domain.claims import Claim, Settled, Want
from carillon.domain.groups import GroupRule, Turns
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import LANE, PROVIDER, defer, enrolment, finish, retry, route
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_mutants import Mutants, clauses_needed
from tests.support.ledger_postgres import connected, until_waiting

engine = engine_fixture()
ledger = ledger_fixture()

CAP = 4
CAPPED = Turns(CAP)
IN_AN_HOUR = {
    "postgres": "UPDATE routes SET next_attempt_at = now() + interval '1 h'",
    "sqlite": "UPDATE routes SET next_attempt_at = next_attempt_at + 3600000",
}


async def fill(ledger: Ledger, groups: dict[int, int], lane: int = LANE, provider: str = PROVIDER) -> None:
    """So many routes of each group, those of the first group first."""
    for group, many in groups.items():
        names = [f"{group}-{number}" for number in range(many)]
        await ledger.enrol([enrolment(route(name, group=group, lane=lane, provider=provider)) for name in names])


async def claimed(ledger: Ledger, most: int, turns: Turns = Turns(), owner: str = "w") -> list[Claim]:  # noqa: B008 - frozen
    return await ledger.claim([Want(LANE, PROVIDER, most, turns)], most, owner)


def counted(claims: list[Claim]) -> dict[int, int]:
    return dict(Counter(claim.group for claim in claims))


async def test_every_group_gets_the_same_and_the_rest_goes_where_more_waits(ledger: Ledger) -> None:
    await fill(ledger, {1: 100, 2: 3, 3: 100})
    assert counted(await claimed(ledger, 9)) == {1: 3, 2: 3, 3: 3}
    assert sorted(counted(await claimed(ledger, 11)).items()) in ([(1, 5), (3, 6)], [(1, 6), (3, 5)])


async def test_a_newcomer_waits_for_one_claim_at_most(ledger: Ledger) -> None:
    await fill(ledger, {1: 300})
    await claimed(ledger, 20)
    await fill(ledger, {2: 1})
    assert 2 in counted(await claimed(ledger, 20))


async def test_claims_begin_after_the_group_that_was_served_last(ledger: Ledger) -> None:
    await fill(ledger, {1: 5, 2: 5, 3: 5, -4: 5})
    served = [(await claimed(ledger, 1))[0].group for _ in range(8)]
    assert served == [-4, 1, 2, 3, -4, 1, 2, 3]


async def test_few_places_go_round_among_many_groups(ledger: Ledger) -> None:
    await fill(ledger, dict.fromkeys(range(1, 11), 2))
    served = [claim.group for _ in range(5) for claim in await claimed(ledger, 4)]
    assert sorted(served[:10]) == list(range(1, 11))
    assert sorted(served[10:]) == list(range(1, 11))


async def test_inside_a_group_the_oldest_comes_first(ledger: Ledger) -> None:
    await fill(ledger, {1: 3, 2: 3})
    claims = await claimed(ledger, 6)
    assert [claim.recipient_ref for claim in claims if claim.group == 1] == ["user:1-0", "user:1-1", "user:1-2"]


async def test_a_weight_is_a_number_of_turns(ledger: Ledger) -> None:
    await fill(ledger, {1: 100, 2: 100})
    assert counted(await claimed(ledger, 40, Turns(special={2: GroupRule(weight=3)}))) == {1: 10, 2: 30}


async def test_lanes_stay_above_groups(ledger: Ledger) -> None:
    await fill(ledger, {1: 10, 2: 10}, lane=3)
    await fill(ledger, {7: 10}, lane=1)
    wants = [Want(lane, PROVIDER, 12) for lane in (1, 2, 3)]
    assert [claim.lane for claim in await ledger.claim(wants, 12, "w")] == [1] * 10 + [3] * 2


async def test_a_group_never_has_more_claims_than_its_cap(ledger: Ledger) -> None:
    await fill(ledger, {-1: 20})
    held = await claimed(ledger, 100, CAPPED)
    assert len(held) == CAP
    assert await claimed(ledger, 100, CAPPED, "other") == []
    assert await ledger.settle([finish(held[0]), retry(held[1])]) == [Settled.APPLIED] * 2
    assert len(await claimed(ledger, 100, CAPPED, "other")) == 2


async def test_a_full_group_hides_nobody(ledger: Ledger) -> None:
    await fill(ledger, {-1: 20, -3: 20})
    await claimed(ledger, 100, CAPPED)
    await fill(ledger, {-2: 3, 5: 3})
    assert counted(await claimed(ledger, 6, CAPPED)) == {-2: 3, 5: 3}


async def test_the_cap_of_a_group_counts_over_all_lanes(ledger: Ledger) -> None:
    for lane in (1, 2, 3):
        await fill(ledger, {-1: 20, 9: 1}, lane=lane)
    claims = await ledger.claim([Want(lane, PROVIDER, 50, CAPPED) for lane in (1, 2, 3)], 50, "w")
    assert counted(claims) == {-1: CAP, 9: 3}


async def test_one_group_may_have_a_cap_of_its_own(ledger: Ledger) -> None:
    await fill(ledger, {-1: 20, -2: 20})
    assert counted(await claimed(ledger, 50, Turns(CAP, {2: GroupRule(cap=7)}))) == {-1: CAP, -2: 7}


async def test_places_come_back_when_a_lease_ends(engine: Engine, ledger: Ledger) -> None:
    await fill(ledger, {-1: CAP})
    dead = await claimed(ledger, 50, CAPPED)
    await engine.expire_leases()
    heirs = await claimed(ledger, 50, CAPPED, "heir")
    assert {claim.key for claim in heirs} == {claim.key for claim in dead}
    assert all(claim.abandoned for claim in heirs)


async def test_what_is_cancelled_takes_no_place(engine: Engine, ledger: Ledger) -> None:
    await fill(ledger, {-1: 20})
    for claim in await claimed(ledger, 50, CAPPED):
        await ledger.settle([defer(claim)])
        assert await ledger.cancel(claim.notification_id) == 1
    assert len(await claimed(ledger, 50, CAPPED)) == CAP
    assert Counter(row["status"] for row in await engine.rows("routes"))["skipped"] == CAP


async def test_a_process_that_calls_a_group_claims_ahead_of_its_own_calls(ledger: Ledger) -> None:
    await fill(ledger, {-1: 20})
    first = await claimed(ledger, 50, CAPPED)
    assert not any(claim.ahead for claim in first)
    calling = Turns(CAP, ahead={1: CAP})
    ahead = await claimed(ledger, 50, calling)
    assert [claim.ahead for claim in ahead] == [True] * CAP
    assert await claimed(ledger, 50, calling) == [], "as many again, and no more"
    assert await claimed(ledger, 50, CAPPED, "other") == [], "nobody else may begin a call"
    await ledger.settle([finish(claim) for claim in (*first, ahead[0])])
    assert [claim.ahead for claim in await claimed(ledger, 50, calling)] == [False] + [True] * CAP


async def test_groups_that_a_worker_excludes_are_passed_over(ledger: Ledger) -> None:
    await fill(ledger, {1: 20, -2: 20, 3: 4})
    assert counted(await claimed(ledger, 50, Turns(CAP, excluded=(1, 2)))) == {3: 4}
    assert counted(await claimed(ledger, 50, CAPPED)) == {1: 20, -2: CAP}


async def test_a_group_is_excluded_from_one_provider_only(ledger: Ledger) -> None:
    await fill(ledger, {1: 2})
    await fill(ledger, {1: 2}, provider="texter")
    wants = [Want(LANE, PROVIDER, 9, Turns(excluded=(1,))), Want(LANE, "texter", 9)]
    assert [claim.provider for claim in await ledger.claim(wants, 9, "w")] == ["texter"] * 2


async def test_what_becomes_due_comes_before_what_came_later(engine: Engine, ledger: Ledger) -> None:
    await fill(ledger, {1: 2})
    early = await claimed(ledger, 2)
    await ledger.settle([retry(claim) for claim in early])
    await engine.make_due()
    await fill(ledger, {1: 1})
    assert [claim.key for claim in await claimed(ledger, 2)] == [claim.key for claim in early]


async def test_what_is_not_due_stands_in_no_turn(engine: Engine, ledger: Ledger) -> None:
    """A hundred groups that wait for their time are not walked over."""
    await fill(ledger, dict.fromkeys(range(1, 101), 1))
    await ledger.settle([defer(claim) for claim in await claimed(ledger, 100)])
    assert {row["turn"] for row in await engine.rows("routes")} == {None}
    assert await claimed(ledger, 100) == []


async def test_rows_that_were_moved_into_the_future_by_hand_hide_nobody(engine: Engine, ledger: Ledger) -> None:
    await fill(ledger, dict.fromkeys(range(1, 11), 1))
    await engine.execute(IN_AN_HOUR[engine.dialect])
    await fill(ledger, {50: 1})
    assert counted(await claimed(ledger, 3)) == {50: 1}


async def test_two_processes_that_claim_at_once_keep_the_cap(engine: Engine) -> None:
    async with engine.ledger() as one, engine.ledger() as two:
        await fill(one, {-1: 40, -2: 40})
        for _ in range(10):
            found = await asyncio.gather(*(claimed(each, 50, CAPPED, "p") for each in (one, two, one, two)))
            claims = [claim for each in found for claim in each]
            assert counted(claims) == {-1: CAP, -2: CAP}
            await one.settle([defer(claim, 0.0) for claim in claims])


class Day:
    """Groups that come, wait, fail, hang and are excluded at random; what was promised is checked at every claim."""

    MOST = 6
    GROUPS = 25

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)
        self._waits: Counter[int] = Counter()
        """How many claims in a row a group with something due and a free place got nothing."""
        self._due: Counter[int] = Counter()
        self._held: list[Claim] = []

    async def pass_by(self, ledger: Ledger, claims: int) -> None:
        for _ in range(claims):
            await self._arrive(ledger)
            excluded = {abs(group) for group in self._due if self._dice.random() < 0.1}
            self._check(await claimed(ledger, self.MOST, Turns(CAP, excluded=excluded)), excluded)
            await self._end(ledger)

    async def _arrive(self, ledger: Ledger) -> None:
        # Some groups flood, most send now and then; every other group has a cap.
        flood = self._dice.randrange(1, 4)
        for number in {flood, self._dice.randrange(1, self.GROUPS)}:
            group = number if number % 2 else -number
            many = 10 if number == flood else 1
            await fill(ledger, {group: many})
            self._due[group] += many

    def _check(self, claims: list[Claim], excluded: set[int]) -> None:
        calling = Counter(claim.group for claim in self._held)
        able = {
            group
            for group, due in self._due.items()
            if due and abs(group) not in excluded and (group > 0 or calling[group] < CAP)
        }
        self._held += claims
        served = Counter(claim.group for claim in claims)
        self._due -= served
        assert set(served) <= able
        assert all(number <= CAP for group, number in Counter(c.group for c in self._held).items() if group < 0)
        assert claims or not able, "no claim stays empty while somebody could have it"
        for group in able:
            self._waits[group] = 0 if served[group] else self._waits[group] + 1
            assert self._waits[group] <= -(-self.GROUPS // self.MOST), "nobody waits longer than a round"

    async def _end(self, ledger: Ledger) -> None:
        self._dice.shuffle(self._held)
        # One group hangs: its calls never end.
        ending = [claim for claim in self._held if abs(claim.group) != 2][: self._dice.randrange(1, 2 * self.MOST)]
        self._held = [claim for claim in self._held if claim not in ending]
        failing = [claim for claim in ending if self._dice.random() < 0.2]
        await ledger.settle([retry(claim, 0.0) if claim in failing else finish(claim) for claim in ending])
        self._due.update(claim.group for claim in failing)


@pytest.mark.parametrize("seed", range(3))
async def test_no_group_waits_longer_than_its_turn(ledger: Ledger, seed: int) -> None:
    await Day(seed).pass_by(ledger, 40)


@pytest.mark.parametrize("known", [False, True], ids=["a new group", "a known group"])
async def test_a_claim_that_waited_for_another_one_takes_nothing_of_its_group(ledger_dsn: str, *, known: bool) -> None:
    await meets_a_rival(PostgresEngine(ledger_dsn), known=known)


@pytest.mark.parametrize("known", [False, True], ids=["a new group", "a known group"])
async def test_without_the_fence_two_processes_exceed_the_cap(ledger_dsn: str, *, known: bool) -> None:
    """Control."""
    engine = PostgresEngine(ledger_dsn)
    loose = engine.statements({"claim": ("WHERE s.fence = excluded.before", "")})
    with pytest.raises(AssertionError):
        await meets_a_rival(engine, loose, known=known)


async def meets_a_rival(engine: PostgresEngine, statements: dict[str, str] | None = None, *, known: bool) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await fill(ledger, {-1: 40, 2: 1})
        if known:
            await ledger.settle([finish(claim) for claim in await claimed(ledger, 50, CAPPED)])
            await fill(ledger, {2: 1})
        async with connected(engine.dsn) as rival:
            async with rival.transaction():
                await rival.execute(
                    "WITH taken AS (DELETE FROM due WHERE ctid IN (SELECT ctid FROM due WHERE grp = -1 LIMIT 4) "
                    "RETURNING ticket) INSERT INTO leases SELECT 98, -1, 'rival', now(), now() + interval '1 h', "
                    "array_agg(ticket) FROM taken"
                )
                await rival.execute(
                    "INSERT INTO slots (grp, fence, taken_at) VALUES (-1, 99, now()) "
                    "ON CONFLICT (grp) DO UPDATE SET fence = excluded.fence"
                )
                late = asyncio.create_task(claimed(ledger, 50, CAPPED))
                await until_waiting(engine.dsn, 1)
            assert counted(await late) == {2: 1}
        assert await claimed(ledger, 50, CAPPED) == []


async def accepted(ledger: Ledger, group: int, many: int, name: str = "n") -> int:
    """How many of so many routes are claimed in the commit that accepts them."""
    batch = [enrolment(route(f"{name}{number}", group=group)) for number in range(many)]
    found = await ledger.enrol_claimed(batch, "w", 30.0, {group: CAP})
    return sum(len(each.claims) for each in found)


async def test_routes_claimed_on_accept_count_as_places(ledger: Ledger) -> None:
    assert await accepted(ledger, -7, CAP + 2) == CAP
    assert await accepted(ledger, -7, 1, "late") == 0
    # What found no place waits for its turn.
    assert await claimed(ledger, 50, CAPPED) == []
    assert await accepted(ledger, -8, 1, "neighbour") == 1


async def test_a_place_that_comes_back_is_taken_on_accept(ledger: Ledger) -> None:
    await fill(ledger, {-7: CAP})
    held = await claimed(ledger, 50, CAPPED)
    assert await accepted(ledger, -7, 1) == 0
    await ledger.settle([finish(held[0])])
    assert counted(await claimed(ledger, 50, CAPPED)) == {-7: 1}
    await ledger.settle([finish(held[1])])
    assert await accepted(ledger, -7, 1, "next") == 1


async def accepts_beside_a_rival(engine: PostgresEngine, statements: dict[str, str] | None = None) -> None:
    """Another process takes all places of a group while this one accepts a route of it."""
    async with engine.ledger(statements=statements) as ledger:
        await fill(ledger, {-1: CAP})
        async with connected(engine.dsn) as rival:
            async with rival.transaction():
                await rival.execute(
                    "WITH taken AS (DELETE FROM due WHERE grp = -1 RETURNING ticket) "
                    "INSERT INTO leases SELECT 98, -1, 'rival', now(), now() + interval '1 h', array_agg(ticket) "
                    "FROM taken"
                )
                await rival.execute("INSERT INTO slots (grp, fence, taken_at) VALUES (-1, 99, now())")
                late = asyncio.create_task(accepted(ledger, -1, 1, "late"))
                await until_waiting(engine.dsn, 1)
            assert await late == 0


async def test_an_acceptance_that_waited_for_a_claim_takes_nothing_of_its_group(ledger_dsn: str) -> None:
    await accepts_beside_a_rival(PostgresEngine(ledger_dsn))


async def test_without_the_fence_an_acceptance_exceeds_the_cap(ledger_dsn: str) -> None:
    """Control."""
    engine = PostgresEngine(ledger_dsn)
    loose = engine.statements({"enrol": ("WHERE s.fence = excluded.before", "")})
    with pytest.raises(AssertionError):
        await accepts_beside_a_rival(engine, loose)


async def test_two_processes_that_accept_at_once_share_the_places(engine: Engine) -> None:
    async with engine.ledger() as here, engine.ledger() as there:
        for group in range(-40, -20):
            taken = await asyncio.gather(accepted(here, group, 3, "here"), accepted(there, group, 3, "there"))
            assert sum(taken) <= CAP
            assert max(taken) > 0


async def test_what_was_claimed_does_not_stand_in_the_turns(ledger: Ledger) -> None:
    await fill(ledger, {1: 3, -2: 3})
    assert counted(await claimed(ledger, 50, CAPPED)) == {1: 3, -2: 3}
    assert await claimed(ledger, 50, CAPPED) == []


MUTANTS: Mutants = {
    "an acceptance that counts no places": (
        test_routes_claimed_on_accept_count_as_places,
        {"enrol": ("FROM leases l WHERE l.grp = cap.grp", "FROM leases l WHERE FALSE")},
        {"places_taken": ("l.grp = :grp", "FALSE")},
    ),
    "an acceptance that does not count its own batch": (
        test_routes_claimed_on_accept_count_as_places,
        {"enrol": ("picked.nth <= picked.free AND", "")},
        {"places_taken": ("l.grp = :grp", "FALSE")},
    ),
    "a claim that always begins with the first group": (
        test_claims_begin_after_the_group_that_was_served_last,
        {"claim": ("d.grp > want.served", "d.grp > -9223372036854775807")},
        {"next_group": ("d.grp > :after", "d.grp > CASE WHEN :after < 100 THEN -100 ELSE :after END")},
    ),
    "a claim that forgets what the groups left": (
        test_every_group_gets_the_same_and_the_rest_goes_where_more_waits,
        {"claim": ("WHERE (SELECT rows FROM lacking) > 0", "WHERE FALSE")},
        {"next_group": ("LIMIT 1", "LIMIT 0")},
    ),
    "a claim that counts no places": (
        test_a_group_never_has_more_claims_than_its_cap,
        {"claim": ("FROM leases l WHERE l.grp = g.grp", "FROM leases l WHERE FALSE")},
        {"places_taken": ("l.grp = :grp", "FALSE")},
    ),
    "a claim that keeps what it took in the turns": (
        test_what_was_claimed_does_not_stand_in_the_turns,
        {"claim": ("DELETE FROM due d WHERE", "DELETE FROM due d WHERE FALSE AND")},
        {"claim": ("WHERE lane", "WHERE FALSE AND lane")},
    ),
    "a claim that leaves what is ripe": (
        test_places_come_back_when_a_lease_ends,
        {"claim": ("SELECT * FROM moved UNION ALL SELECT * FROM lapsed", "SELECT * FROM moved")},
        {"lapse": ("status IN ('pending', 'failed')", "FALSE")},
    ),
}


test_each_clause_is_needed = clauses_needed(MUTANTS)
