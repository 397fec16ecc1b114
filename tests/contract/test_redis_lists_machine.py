"""Any sequence of puts, claims, verdicts, deaths, sweeps and pumps leaves a real server where the model is."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis as Client

from carillon.domain.claims import Claim
from carillon.ledger.redis import scripts as redis_lists_scripts
from tests.support.ledger_builders import bury, defer, finish, retry
from tests.support.queue_lists import Lists
from tests.support.queue_model import ListModel, copy_of
from tests.support.queue_stand import envelope
from tests.support.servers import Redis

pytestmark = pytest.mark.slow

PICKS = st.sampled_from([0, 0, 0, 1, 2, 5])
IDS = st.sampled_from(["a", "b", "c"])
VERDICTS: dict[str, Any] = {
    "finish": finish,
    "retry": retry,
    "bury": bury,
    "defer": defer,
    "release": lambda claim: defer(claim, 0.0),
}

# Shrinking a found fault is for people; here it only has to be found.
SETTINGS = settings(
    max_examples=30,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class ListMachine(RuleBasedStateMachine):
    """Every rule asks the server and the model the same thing; two workers share the queue."""

    runner: asyncio.Runner
    lists: Lists

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize()
    def start(self) -> None:
        self.run(self.lists.redis.flushall())
        self.model = ListModel()
        self.claims: list[Claim] = []
        self.put(["a", "a", "b"])
        self.claim(2)

    @rule(ids=st.lists(IDS, min_size=1, max_size=4))
    def put(self, ids: list[str]) -> None:
        messages = [envelope(id=own_id, created_at="t") for own_id in ids]
        self.run(self.lists.put(*messages))
        self.model.main += [copy_of(b'{"id":"%b","attempts":0}' % own_id.encode()) for own_id in ids]

    @rule(most=st.integers(1, 4))
    def claim(self, most: int) -> None:
        claims = self.run(self.lists.claim(most))
        given = self.model.claim(most, [claim.token for claim in claims])
        assert [copy_of(claim.place.raw) for claim in claims] == given
        self.claims += claims

    @rule(pick=PICKS, verdict=st.sampled_from([*sorted(VERDICTS), "retry", "retry"]))
    def settle(self, pick: int, verdict: str) -> None:
        claim = self.picked(pick)
        expected = self.model.settle(copy_of(claim.place.raw), claim.token, verdict)
        assert self.run(self.lists.backlog.settle([VERDICTS[verdict](claim)])) == [expected]

    @rule(verdict=st.sampled_from(sorted(VERDICTS)))
    def work_off(self, verdict: str) -> None:
        """A worker's whole turn, twice."""
        for _ in range(2):
            before = len(self.claims)
            self.claim(4)
            for claim in self.claims[before:]:
                expected = self.model.settle(copy_of(claim.place.raw), claim.token, verdict)
                assert self.run(self.lists.backlog.settle([VERDICTS[verdict](claim)])) == [expected]

    @rule(pick=PICKS)
    def extend(self, pick: int) -> None:
        claim = self.picked(pick)
        held = self.model.locks.get(claim.notification_id) == claim.token
        assert self.run(self.lists.backlog.extend([claim])) == ([] if held else [claim])

    @rule()
    def every_worker_dies(self) -> None:
        self.run(self.lists.expire())
        self.model.locks.clear()

    @rule(own_id=IDS)
    def one_lock_runs_out(self, own_id: str) -> None:
        self.run(self.lists.redis.delete(f"lock:q:test:work:{own_id}"))
        self.model.locks.pop(own_id, None)

    @rule()
    def sweep(self) -> None:
        assert self.run(self.lists.sweep_all()) == self.model.sweep()
        self.failed_in_their_order()

    @rule()
    def time_passes(self) -> None:
        self.run(self.lists.make_due())
        waiting, number = self.model.main, len(self.model.delayed)
        assert self.run(self.lists.upkeep.pump()) == number
        pumped = [copy_of(text) for text in self.run(self.lists.main())[len(waiting) :]]
        # In the order of their scores, which the server's clock made.
        assert sorted(pumped) == sorted(self.model.delayed)
        self.model.main = waiting + pumped
        self.model.delayed = []

    @rule()
    def requeue(self) -> None:
        assert self.run(self.lists.desk.requeue("q:test:work")) == self.model.requeue()

    def picked(self, pick: int) -> Claim:
        """A claim, the latest for 0; some are held, some are lost by now, some are settled."""
        return self.claims[-1 - pick % len(self.claims)]

    def failed_in_their_order(self) -> None:
        """Orphans of one sweep are taken from the old end, twins of one id in any order."""
        failed = [copy_of(text) for text in reversed(self.run(self.lists.failed()))]
        assert sorted(failed) == sorted(self.model.failed)
        self.model.failed = failed

    @invariant()
    def lists_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        assert [copy_of(text) for text in self.run(self.lists.main())] == model.main
        assert sorted(copy_of(text) for text in self.run(self.lists.processing())) == sorted(model.processing)
        assert sorted(copy_of(text) for text, _ in self.run(self.lists.delayed())) == sorted(model.delayed)
        assert [copy_of(text) for text in reversed(self.run(self.lists.failed()))] == model.failed
        assert {lock.decode().rpartition(":")[2] for lock in self.run(self.lists.locks())} == set(model.locks)


def run_machine(server: Redis) -> None:
    with asyncio.Runner() as runner:
        client = Client.from_url(server.url())

        async def made() -> Lists:
            return Lists(client, busy_pause=0.0)

        machine = type("Machine", (ListMachine,), {"runner": runner, "lists": runner.run(made())})
        try:
            run_state_machine_as_test(machine, settings=SETTINGS)
        finally:
            runner.run(client.aclose())


@pytest.mark.req("S3-33")
@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_the_server_is_always_where_the_model_is(kind: str, request: pytest.FixtureRequest) -> None:
    run_machine(request.getfixturevalue(f"{kind}_server"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("settle", "while added == 0 do", "while false do"),
        ("settle", "if ours or (verb == 'ack' and not holder) then", "if true then"),
        ("sweep", "if not holder_of(lock_of(item[1], id)) then", "if item[1] == '' then"),
        ("claim", "redis.call('LPUSH', queue, text)", "redis.call('RPUSH', queue, text)"),
    ],
    ids=["equal members", "without the token", "no sweep", "no rotation"],
)
def test_the_machine_notices(
    redis_server: Redis, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str
) -> None:
    texts = redis_lists_scripts.script_texts()
    assert old in texts[name]
    monkeypatch.setattr(redis_lists_scripts, "script_texts", lambda: {**texts, name: texts[name].replace(old, new)})
    with pytest.raises(AssertionError):
        run_machine(redis_server)
