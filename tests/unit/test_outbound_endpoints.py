"""Endpoints of one provider: a dead one stops nobody else, and only most of them together stop the provider."""

import pytest

from carillon.domain.breaker import BreakerPolicy, State
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.groups import Groups
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.outcomes import Outcome, Sent, Unavailable, Unknown
from carillon.domain.pauses import LATEST_SECONDS, Paused
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.targets import endpoint_of, target_of
from carillon.domain.verdicts import Bury, Defer, Finish, Retry, Verdict
from carillon.outbound.admission import Admissions
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.targets import Targets
from tests.support.clocks import ManualClock
from tests.support.dispatches import claim
from tests.unit.test_outbound_leases import Unused

POLICY = RetryPolicy(max_attempts=9, base_delay_seconds=10.0, jitter="none", failover_after_attempts=9)
BREAKER = BreakerPolicy(
    failure_threshold=3, open_seconds=60.0, disable_after_seconds=432_000.0, least_endpoints=5, probe_seconds=30.0
)


class Hooks:
    """A provider with endpoints; those in `dead` fail, and every call is remembered."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.outcome: Outcome = Unavailable("refused")
        self.called: list[str] = []

    def endpoint(self, address: str | None) -> str | None:
        return None if address is None else endpoint_of(address)

    async def send(self, dispatch: Dispatch) -> Outcome:
        host = str(self.endpoint(dispatch.claim.address)).partition(":")[0]
        self.called.append(host)
        return self.outcome if host in self.dead else Sent()

    async def aclose(self) -> None:
        """Nothing is held."""


BY_ENDPOINT = Groups(by="endpoint")


class Desk:
    """Attempts over real breakers and targets, under a clock that the test moves."""

    def __init__(self, *, on_open: str = "defer", second: bool = False, groups: Groups = BY_ENDPOINT) -> None:
        self.clock = ManualClock()
        self.dice = 0.5
        self.hooks, self.second = Hooks(), Hooks()
        self.breakers = MemoryBreakers({"*": BREAKER.of_provider()}, self.clock, lambda _: None)
        self.targets = Targets(None, {"*": BREAKER}, service="test", clock=self.clock, observer=lambda _: None)
        self.leases = Leases(Unused(), self.clock, lambda _: None, 1e9)
        self.tokens = iter(range(1, 1_000_000))
        providers = {"hooks": self.hooks, **({"second": self.second} if second else {})}
        policy = RetryPolicy(
            max_attempts=9,
            base_delay_seconds=10.0,
            jitter="none",
            failover_after_attempts=9,
            on_open=on_open,  # type: ignore[arg-type] # a parameter of the test
        )
        self.attempts = Attempts(
            providers=providers,
            breakers=self.breakers,
            leases=self.leases,
            rules=AttemptRules(
                {"webhook": tuple(providers)},
                PolicyTable({"*/*": policy}),
                Lanes({"standard": Lane(rank=0, queue_name="standard")}),
                groups={"hooks": groups},
            ),
            clock=self.clock,
            dice=lambda: self.dice,
            targets=self.targets,
        )

    def claim(self, host: str, **more: object) -> Claim:
        one = claim(token=next(self.tokens), provider="hooks", address=f"https://{host}/in?secret=1", **more)
        self.leases.take([one], self.clock.monotonic())
        return one

    async def to(self, host: str, **more: object) -> Verdict:
        return (await self.attempts.attempt(self.claim(host, **more))).verdict

    async def kill(self, *hosts: str) -> None:
        self.hooks.dead |= set(hosts)
        for host in hosts:
            for _ in range(BREAKER.failure_threshold):
                await self.to(host)

    async def provider(self) -> State:
        return (await self.breakers.look(["hooks"]))["hooks"]


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://Hooks.Example.org/a?token=1", "hooks.example.org:443"),
        ("http://hooks.example.org", "hooks.example.org:80"),
        ("https://hooks.example.org:8443/x", "hooks.example.org:8443"),
        ("https://user:word@hooks.example.org/", "hooks.example.org:443"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("nonsense", None),
        ("http://x:99999/", None),
    ],
)
def test_an_endpoint_is_a_host_and_a_port_and_no_secret(url: str, endpoint: str | None) -> None:
    assert endpoint_of(url) == endpoint


async def test_a_dead_endpoint_waits_for_its_own_breaker_and_its_neighbour_is_called() -> None:
    desk = Desk()
    await desk.kill("dead")
    calls = len(desk.hooks.called)
    verdict = await desk.to("dead")
    assert isinstance(verdict, Defer)
    assert 60.0 <= verdict.delay <= 90.0, "until the probe, spread a little"
    assert len(desk.hooks.called) == calls, "it was not called"
    for _ in range(100):
        assert isinstance(await desk.to("alive"), Finish)
    assert await desk.provider() is State.CLOSED


@pytest.mark.req("P-570")
@pytest.mark.parametrize("together", [False, True])
async def test_a_failed_probe_of_an_endpoint_spends_no_attempt_of_its_message(*, together: bool) -> None:
    desk = Desk()
    await desk.kill("dead")
    for _ in range(3):
        desk.clock.now += 61.0
        last = desk.claim("dead", attempt=9, max_attempts=9)
        calls = len(desk.hooks.called)
        (settled,) = await desk.attempts.attempt_many([last]) if together else [await desk.attempts.attempt(last)]
        assert settled.verdict == Defer(1.5)
        assert len(desk.hooks.called) == calls + 1
    desk.hooks.dead.clear()
    desk.clock.now += 61.0
    assert isinstance(await desk.to("dead"), Finish)
    desk.hooks.dead.add("dead")
    assert isinstance(await desk.to("dead", attempt=9, max_attempts=9), Bury), "no probe: the attempt counts"


async def test_a_route_never_comes_back_a_moment_too_early() -> None:
    """The ledger counts whole milliseconds: a shorter wait would be none, again and again."""
    desk = Desk()
    desk.dice = 0.0
    await desk.kill("dead")
    desk.clock.now += 59.9996
    verdict = (await desk.attempts.attempt(desk.claim("dead"))).verdict
    assert isinstance(verdict, Defer)
    assert round(verdict.delay * 1000) >= 1
    desk.clock.now += 0.001
    calls = len(desk.hooks.called)
    assert isinstance(await desk.to("dead"), Defer)
    assert len(desk.hooks.called) == calls + 1, "it is called"


async def test_a_deferred_route_has_no_note_so_that_no_attempt_is_counted() -> None:
    desk = Desk()
    await desk.kill("dead")
    assert (await desk.attempts.attempt(desk.claim("dead"))).note is None


async def test_many_claims_together_are_called_by_endpoint() -> None:
    desk = Desk()
    await desk.kill("dead")
    batch = [desk.claim(host) for host in ["dead", "alive", "dead", "other"] * 50]
    ready, alone, held = await desk.attempts.ready_to_call(batch)
    assert [len(ready), len(alone), len(held)] == [100, 0, 100]
    assert {str(one.claim.address) for one in ready} == {"https://alive/in?secret=1", "https://other/in?secret=1"}
    assert all(isinstance(one.verdict, Defer) and one.note is None for one in held)


async def test_the_group_of_an_open_endpoint_is_left_out_of_claims_until_its_probe() -> None:
    desk = Desk()
    await desk.kill("dead")
    await desk.attempts.ready_to_call([desk.claim("dead", group=-7), desk.claim("alive", group=-8)])
    assert desk.attempts.left_out("hooks") == [7]
    desk.clock.now += 31.0
    assert desk.attempts.left_out("hooks") == [], "another process may have closed it: a few are claimed again"


@pytest.mark.req("P-882")
@pytest.mark.parametrize(
    "groups",
    [Groups(by="tenant"), Groups(by="person"), Groups(by="endpoint", shared=frozenset({"dead:443"}))],
    ids=["tenant", "person", "host with registered URLs"],
)
@pytest.mark.parametrize("paused", [False, True])
async def test_a_group_with_other_endpoints_is_not_left_out_for_one_of_them(groups: Groups, *, paused: bool) -> None:
    desk = Desk(groups=groups)
    if paused:
        by_hand = Paused(what="endpoint hooks dead:443", by="root", reason="test", since_ms=0)
        desk.targets.paused[target_of("hooks", "dead:443")] = by_hand
    else:
        await desk.kill("dead")
    assert isinstance(await desk.to("dead", group=-7, tenant_id="a"), Defer)
    assert desk.attempts.left_out("hooks") == []


@pytest.mark.parametrize(("on_open", "second"), [("bury", False), ("defer", True)])
async def test_routes_that_must_be_claimed_are_not_left_out(on_open: str, *, second: bool) -> None:
    desk = Desk(on_open=on_open, second=second)
    await desk.kill("dead")
    await desk.attempts.ready_to_call([desk.claim("dead", group=-7)])
    assert desk.attempts.left_out("hooks") == []


async def test_of_many_claims_together_one_probes() -> None:
    desk = Desk()
    await desk.kill("dead")
    desk.clock.now += 61.0
    ready, alone, held = await desk.attempts.ready_to_call([desk.claim("dead") for _ in range(100)])
    assert [len(ready), len(alone), len(held)] == [1, 0, 99]
    desk.hooks.dead.clear()
    await desk.attempts.conclude([(ready[0], Sent())], 1.0)
    ready, _, held = await desk.attempts.ready_to_call([desk.claim("dead") for _ in range(100)])
    assert [len(ready), len(held)] == [100, 0]


async def test_the_provider_opens_when_most_endpoints_begin_to_fail() -> None:
    desk = Desk()
    for number in range(10):
        assert isinstance(await desk.to(f"h{number}"), Finish)
    desk.clock.now += 1.0
    await desk.kill(*(f"h{number}" for number in range(5)))
    assert await desk.provider() is State.CLOSED, "half of them are not most"
    desk.clock.now += 1.0
    await desk.kill("h5", "h6")
    assert await desk.provider() is State.OPEN
    calls = len(desk.hooks.called)
    assert isinstance(await desk.to("h9"), Defer)
    assert len(desk.hooks.called) == calls
    desk.clock.now += 61.0
    assert isinstance(await desk.to("h9"), Finish), "one probe of an endpoint that works"
    assert await desk.provider() is State.CLOSED
    assert isinstance(await desk.to("h8"), Finish)


async def test_few_endpoints_never_open_the_provider() -> None:
    desk = Desk()
    await desk.kill("h0", "h1", "h2", "h3")
    desk.clock.now += 1.0
    assert await desk.provider() is State.CLOSED
    assert isinstance(await desk.to("alive"), Finish)


async def test_endpoints_that_were_dead_before_say_nothing_about_the_provider() -> None:
    desk = Desk()
    await desk.kill("h0", "h1", "h2", "h3")
    for _ in range(30):
        desk.clock.now += 61.0
        for number in range(4):
            await desk.to(f"h{number}")
            await desk.to("alive")
        assert await desk.provider() is State.CLOSED
    assert desk.hooks.called.count("alive") == 120


async def test_a_call_that_the_shutdown_cut_off_is_nobodys_failure() -> None:
    desk = Desk()
    desk.hooks.outcome = Unknown("cut off by shutdown", "shutdown")
    await desk.kill("slow")
    assert isinstance(await desk.to("slow"), Retry), "it is called again"
    assert len(desk.hooks.called) == BREAKER.failure_threshold + 1


async def test_an_open_endpoint_fails_over_where_there_is_a_second_provider() -> None:
    desk = Desk(second=True)
    await desk.kill("dead")
    assert isinstance(await desk.to("dead"), Finish)
    assert desk.second.called == ["dead"]


async def test_where_the_policy_says_so_an_open_endpoint_makes_dead_letters() -> None:
    desk = Desk(on_open="bury")
    await desk.kill("dead")
    assert await desk.to("dead") == Bury("circuit_open", "circuit breaker open: hooks@dead:443")
    assert isinstance(await desk.to("alive"), Finish)


async def test_a_disabled_endpoint_makes_dead_letters_and_its_probe_enables_it() -> None:
    desk = Desk()
    await desk.kill("dead")
    desk.clock.now += 6 * 86_400
    assert isinstance(await desk.to("dead"), Defer), "the probe fails after six days: it is disabled"
    assert await desk.to("dead") == Bury(
        "endpoint_disabled", "endpoint disabled after failing for days: hooks@dead:443"
    )
    desk.clock.now += 3601
    desk.hooks.dead.clear()
    assert isinstance(await desk.to("dead"), Finish)
    assert isinstance(await desk.to("dead"), Finish)


async def test_an_operators_choice_of_the_provider_ignores_the_breakers() -> None:
    desk = Desk()
    await desk.kill("dead")
    desk.hooks.dead.clear()
    assert isinstance(await desk.to("dead", attempts_before=-1), Finish)


async def test_control_without_breakers_of_endpoints_one_endpoint_stops_its_neighbours() -> None:
    """The provider's breaker alone, as it was: what the tests above would see."""
    desk = Desk()
    plain = Admissions({"hooks": desk.hooks}, desk.breakers, None, desk.clock)
    for _ in range(BREAKER.failure_threshold):
        await plain.record("hooks", [(desk.claim("dead"), Unavailable("refused"))])
    assert await plain.admit("hooks", desk.claim("alive")) is not None
    assert target_of("hooks", "alive:443") not in await desk.targets.views()


@pytest.mark.req("P-501")
@pytest.mark.parametrize("target", ["hooks", "hooks@alive:443", "lane/0", "template/welcome", "tenant/acme"])
@pytest.mark.parametrize("before", [0, -1], ids=["usual", "forced"])
async def test_what_is_paused_is_not_called_alone_in_batches_or_by_force(target: str, before: int) -> None:
    desk = Desk(on_open="bury", second=True)
    desk.targets.paused[target] = Paused(what="it", by="ada", reason="asked", since_ms=0)
    claims = [
        desk.claim("alive", notification_type="welcome", tenant_id="acme", attempts_before=before) for _ in range(2)
    ]
    verdict = (await desk.attempts.attempt(claims[0])).verdict
    assert isinstance(verdict, Defer)
    assert 0.5 <= verdict.delay <= LATEST_SECONDS
    ready, alone, settled = await desk.attempts.ready_to_call([claims[1]])
    assert ready == []
    for one in alone:
        settled.append(await desk.attempts.attempt(one))
    assert [type(one.verdict) for one in settled] == [Defer]
    assert (desk.hooks.called, desk.second.called) == ([], []), "neither provider is called"
    desk.targets.paused.clear()
    again = desk.claim("alive", notification_type="welcome", tenant_id="acme", attempts_before=before)
    assert isinstance((await desk.attempts.attempt(again)).verdict, Finish)


@pytest.mark.req("P-501")
async def test_a_pause_outlasts_the_time_after_which_a_route_is_given_up() -> None:
    desk = Desk()
    desk.targets.paused["hooks"] = Paused(what="provider hooks", by="ada", reason="asked", since_ms=0)
    assert isinstance(await desk.to("alive", age_seconds=1e9), Defer)
