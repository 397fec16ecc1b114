"""What has ended, in the order in which it was written, for one process at a time that keeps history."""

from typing import Any

import msgspec

from carillon.domain.history import Cursor, Ending, Mark
from carillon.domain.store import Ask, Engine, Steps


class HistoryStore:
    """Satisfies HistoryLedger; times are microseconds here, because history must not pass by what it has not read."""

    engine: Engine

    async def take_history(self, owner: str, lease_seconds: float, lag_seconds: float) -> Cursor | None:
        def steps() -> Steps[Cursor | None]:
            taken = yield Ask("take_history", {"owner": owner, "lease_seconds": lease_seconds})
            if not taken:
                return None
            (horizon,) = yield Ask("history_horizon", {"lag_seconds": lag_seconds})
            return Cursor(msgspec.convert(taken[0], Mark), horizon["until_us"])

        return await self.engine.change(steps, repeatable=True)

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[Ending]:
        values = {**_place(after), "until_us": until_us, "limit": limit}
        return [Ending(**row) for row in await self.engine.rows("endings", values)]

    async def advance_history(self, owner: str, to: Mark) -> bool:
        moved = await self.engine.write("advance_history", {**_place(to), "owner": owner}, repeatable=True)
        return bool(moved)

    async def rewind_history(self, to_us: int) -> None:
        await self.engine.write("rewind_history", {"changed_us": to_us}, repeatable=True)


def _place(mark: Mark) -> dict[str, Any]:
    return msgspec.structs.asdict(mark)
