"""Leases in Redis that other services can see, in addition to the leases of the ledger, which decide."""

import asyncio
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.resources import files

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.ports import Backlog
from carillon.domain.verdicts import Defer
from carillon.ending import ended

CLOSE_SECONDS = 1.0
"""How long the end of the process waits for the last releases."""
_SCRIPT = (files("carillon.ledger.redis") / "leases.lua").read_text()
_AWAY = (RedisError, OSError)
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_pack = msgspec.msgpack.encode


class RedisLeases:
    """Satisfies Backlog: a worker attempts only routes whose lease it holds both in the ledger and in Redis."""

    def __init__(
        self,
        backlog: Backlog,
        redis: Redis,
        *,
        lease_seconds: float,
        owner: str,
        prefix: str = "notification:route_leases",
    ) -> None:
        """`owner` is the unique name of this process."""
        self._backlog = backlog
        self._redis = redis
        self._script = redis.register_script(_SCRIPT)
        self._seconds = lease_seconds
        self._owner = f"{owner}:"
        self._prefix = prefix
        self._away = False
        self._releasing: set[asyncio.Task[None]] = set()

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        """Claim from the ledger; defer routes that another process holds in Redis, without spending an attempt."""
        if self._away:
            # If Redis is down, do not claim: every poll would write each due route twice, to claim and release it.
            await self._look()
        asked_at = _now()
        claims = await self._backlog.claim(wants, total, owner)
        if not claims:
            return claims
        try:
            held = await self._run("take", claims, asked_at)
        except _AWAY as error:
            await self._backlog.settle([Settlement(claim=claim, verdict=Defer(0.0)) for claim in claims])
            raise _unavailable(error) from error
        if not held:
            return claims
        waits = {place - 1: self._wait(left) for place, left in zip(held[::2], held[1::2], strict=True)}
        await self._backlog.settle(
            [Settlement(claim=claims[place], verdict=Defer(wait)) for place, wait in waits.items()]
        )
        return [claim for place, claim in enumerate(claims) if place not in waits]

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases in the ledger, which decides, and in Redis if it answers."""
        asked_at = _now()
        lost = await self._backlog.extend(claims)
        gone = {claim.token for claim in lost}
        kept = [claim for claim in claims if claim.token not in gone]
        if kept and not self._away:
            with suppress(*_AWAY):
                await self._run("extend", kept, asked_at)
        return lost

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle in the ledger, and release the leases in Redis after the commit."""
        settled = await self._backlog.settle(settlements)
        if settlements and not self._away:
            task = asyncio.create_task(self._release([settlement.claim for settlement in settlements]))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)
        return settled

    async def aclose(self) -> None:
        """Wait a moment for the releases in flight; the caller closes the Redis client and the ledger."""
        if self._releasing:
            _, late = await asyncio.wait(self._releasing, timeout=CLOSE_SECONDS)
            # A Redis that says nothing must not delay the end of the process: these leases expire.
            await ended(*late)

    async def _release(self, claims: Sequence[Claim]) -> None:
        # If the release fails, the lease expires.
        with suppress(*_AWAY):
            await self._run("release", claims, _now())

    async def _run(self, verb: str, claims: Sequence[Claim], asked_at: float) -> list[int]:
        packed = _pack(list(self._pairs(claims)))
        # The time counts from before the claim in the ledger, so the lease in Redis ends first, and the next holder
        # in the ledger does not meet it.
        lease_ms = max(1, int((asked_at + self._seconds - _now()) * 1000))
        try:
            # A Redis that hangs must not delay a claim until its lease in the ledger has expired.
            async with asyncio.timeout(self._seconds / 3):
                held: list[int] = await self._script(args=[verb, lease_ms, self._owner, packed])
        except _AWAY:
            self._away = True
            raise
        return held

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._redis.ping()
        except _AWAY as error:
            raise _unavailable(error) from error
        self._away = False

    def _pairs(self, claims: Sequence[Claim]) -> Iterable[str]:
        prefix, owner = self._prefix, self._owner
        for claim in claims:
            yield f"{prefix}:{_segment(claim.notification_id)}:{_segment(claim.route_id)}"
            # One value per claim, so that a late release cannot remove the lease of a newer claim of the same route.
            yield f"{owner}{claim.token}"

    def _wait(self, left_ms: int) -> float:
        # For a lease without an expiry, look again after a fixed time.
        return left_ms / 1000 if left_ms >= 0 else self._seconds


def _now() -> float:
    return asyncio.get_running_loop().time()


def _segment(text: str) -> str:
    return b2a_base64(text.encode(), newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def _unavailable(error: BaseException) -> LedgerUnavailable:
    return LedgerUnavailable(f"the leases in Redis are not available: {type(error).__name__}: {error}")
