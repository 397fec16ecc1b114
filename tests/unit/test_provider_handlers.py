"""What a registered function does, and what becomes of the run."""

import asyncio
import contextlib
import contextvars
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.jobs import JobMessage, Permanent
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable
from carillon.ledger.redis.lists import ListPlace
from carillon.providers import handlers as provided
from carillon.providers.handlers import Handler, Handlers, Job, Threads
from tests.support.waiting import until

NOBODY: Any = None


def claim(token: int = 1) -> Claim:
    message = JobMessage("m1", "renewal", 1, {"a": 1}, 4, "sub", "evt", "then")
    return Claim(
        notification_id="m1",
        route_id="q",
        token=token,
        channel="q",
        recipient_ref="",
        lane=1,
        provider="q",
        policy="q",
        attempt=2,
        attempts_before=0,
        max_attempts=5,
        age_seconds=0.0,
        notification_type="renewal",
        producer="test",
        payload_json="{}",
        accepted_at_ms=0,
        place=ListPlace("q", b"raw", b"m1", "t:1", message),
    )


def handlers(function: Callable[[Job], Any], most: int = 4) -> Handlers:
    return Handlers({"q": Handler(function, "job", 30.0)}, NOBODY, Threads(most))


async def ran(function: Callable[[Job], Any]) -> Outcome:
    async with asyncio.timeout(20):
        return await handlers(function).send(Dispatch(claim(), None, 10.0))


@pytest.mark.req("S3-26", "S3-65")
async def test_a_job_says_what_its_message_says() -> None:
    seen: list[Job] = []
    assert isinstance(await ran(seen.append), Sent)
    (job,) = seen
    assert (job.queue, job.id, job.action, job.attempts, job.max_attempts) == ("q", "m1", "renewal", 1, 4)
    assert (job.correlation_id, job.idempotency_key, job.created_at) == ("sub", "evt", "then")
    assert (job.payload, job.raw) == ({"a": 1}, b"raw")


@pytest.mark.req("S3-37")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("no"), Unavailable("ValueError: no", "handler_error")),
        (Permanent("never"), Refused("Permanent: never", "permanent")),
        (TimeoutError("slow"), Unavailable("TimeoutError: slow", "handler_error")),
        (KeyError("x"), Unavailable("KeyError: 'x'", "handler_error")),
        (asyncio.CancelledError(), Unavailable("the handler was cancelled from within", "handler_error")),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_what_is_raised_becomes_an_outcome(error: BaseException, outcome: Outcome, *, waits: bool) -> None:
    async def waiting(_job: Job) -> None:
        raise error

    def plain(_job: Job) -> None:
        raise error

    got = await ran(waiting if waits else plain)
    if isinstance(error, asyncio.CancelledError) and not waits:
        assert isinstance(got, Unavailable)
    else:
        assert got == outcome


async def test_a_process_exit_asked_for_by_a_handler_is_a_failed_run() -> None:
    def plain(_job: Job) -> None:
        raise SystemExit(3)

    async def waiting(_job: Job) -> None:
        raise SystemExit(3)

    assert await ran(waiting) == Unavailable("SystemExit: 3", "handler_error")
    assert await ran(plain) == Unavailable("RuntimeError: SystemExit: 3", "handler_error")


async def test_every_kind_of_callable_is_run_to_its_end() -> None:
    ends: list[str] = []

    class Waiting:
        async def __call__(self, _job: Job) -> None:
            await asyncio.sleep(0)
            ends.append("object")

    async def waiting(name: str, _job: Job) -> None:
        await asyncio.sleep(0)
        ends.append(name)

    for function in (Waiting(), functools.partial(waiting, "partial"), lambda job: waiting("lambda", job)):
        assert isinstance(await ran(function), Sent)
    assert ends == ["object", "partial", "lambda"]


async def test_a_plain_function_runs_beside_the_loop_in_its_callers_context() -> None:
    word = contextvars.ContextVar("word", default="none")
    word.set("told")
    seen: list[Any] = []
    await ran(lambda _job: seen.extend([word.get(), threading.current_thread()]))
    assert seen[0] == "told"
    assert seen[1] is not threading.main_thread()
    assert seen[1].daemon


async def test_a_lost_lock_cancels_its_run_and_no_other() -> None:
    begun, gate = asyncio.Semaphore(0), asyncio.Event()

    async def waiting(_job: Job) -> None:
        begun.release()
        await gate.wait()

    provider = handlers(waiting)
    first, second = (asyncio.create_task(provider.send(Dispatch(claim(n), None, 10.0))) for n in (1, 2))
    for _ in range(2):
        await begun.acquire()
    provider.lose(claim(1))
    provider.lose(claim(99))
    assert await first == Unavailable("the lock was lost while the handler ran", "lock_lost")
    gate.set()
    assert isinstance(await second, Sent)


async def test_a_handler_that_swallows_its_cancellation_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provided, "AGAIN_SECONDS", 0.01)
    begun = asyncio.Event()

    async def deaf(_job: Job) -> None:
        begun.set()
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    provider = handlers(deaf)
    task = asyncio.create_task(provider.send(Dispatch(claim(), None, 10.0)))
    await begun.wait()
    provider.lose(claim())
    async with asyncio.timeout(20):
        assert isinstance(await task, Unavailable)
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_is_obeyed() -> None:
    begun = asyncio.Event()

    async def waiting(_job: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(handlers(waiting).send(Dispatch(claim(), None, 10.0)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_thread_that_hangs_is_replaced() -> None:
    gate, begun = threading.Event(), threading.Event()
    pool = Threads(1)

    def hang() -> None:
        begun.set()
        gate.wait(60)

    stuck = asyncio.create_task(pool.run(hang))
    assert await asyncio.to_thread(begun.wait, 30)
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    seen: list[int] = []
    async with asyncio.timeout(20):
        await pool.run(lambda: seen.append(1))
    assert seen == [1]
    gate.set()


async def test_no_more_threads_than_allowed() -> None:
    pool, lock = Threads(3), threading.Lock()
    now, most = 0, 0

    def busy() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1

    async with asyncio.timeout(30):
        await asyncio.gather(*(pool.run(busy) for _ in range(30)))
    assert most <= 3


async def test_too_many_hanging_runs_are_no_more_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provided, "MOST_STUCK", 1)
    gate, begun = threading.Event(), threading.Event()

    def hang(_job: Job) -> None:
        begun.set()
        gate.wait(60)

    provider = handlers(hang)
    first = asyncio.create_task(provider.send(Dispatch(claim(), None, 10.0)))

    async def has_begun() -> bool:
        return begun.is_set()

    await until(has_begun, timeout=20, what="the first run")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    outcome = await provider.send(Dispatch(claim(2), None, 10.0))
    assert isinstance(outcome, Throttled)
    assert "restart" in outcome.error
    gate.set()


async def test_a_run_that_never_began_leaves_no_thread_behind() -> None:
    gate, begun, pool = threading.Event(), threading.Event(), Threads(1)

    def hang() -> None:
        begun.set()
        gate.wait(60)

    first = asyncio.create_task(pool.run(hang))
    assert await asyncio.to_thread(begun.wait, 30)
    ran_second: list[int] = []
    second = asyncio.create_task(pool.run(lambda: ran_second.append(1)))
    # One turn puts it behind the first: there is no other thread to begin it.
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.set()
    await first
    async with asyncio.timeout(20):
        await pool.run(lambda: None)
    assert ran_second == []
