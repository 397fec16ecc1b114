"""Leases that ran out: what becomes of routes whose worker died holding them."""

from typing import Protocol

import msgspec


class Reset(msgspec.Struct, frozen=True):
    """How many expired leases were taken back, and how many of their routes had no attempt left and were given up."""

    count: int = 0
    failed: int = 0


class LeaseLedger(Protocol):
    """Where leases are held."""

    async def reset_expired(self, limit: int) -> Reset:
        """Take back up to so many leases of live streams that ran out; raises LedgerUnavailable and has done nothing.

        The claim counts the attempt, so resetting a lease costs no attempt, however often it happens.
        """
        ...
