"""Batches of concurrent calls: items that arrive during one flush go into the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from carillon.domain.errors import LedgerUnavailable, Overloaded

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# Items added together, the future of their caller, and whether the caller gets one answer instead of a list.
_Entry: TypeAlias = "tuple[Sequence[Any], asyncio.Future[Any], bool]"


class Coalescer(Generic[Item, Answer]):
    """Collects the items of many callers into few flushes; each caller waits for the answer to its own items."""

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
        *,
        max_batch: int,
        max_pending: int,
    ) -> None:
        self._flush = flush
        self._max_batch = max_batch
        self._max_pending = max_pending
        self._pending: deque[_Entry] = deque()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item; the future completes after the commit of the flush that carried the item."""
        return self._queue((item,), alone=True)

    def add_all(self, items: Sequence[Item]) -> "asyncio.Future[list[Answer | Exception]]":
        """Queue items that stay together; one future for all, with each item's answer or what it failed with."""
        return self._queue(items, alone=False)

    async def drain(self) -> None:
        """Wait until everything queued so far has been answered."""
        while self._task is not None:
            await asyncio.shield(self._task)

    def _queue(self, items: Sequence[Item], *, alone: bool) -> asyncio.Future[Any]:
        if self._waiting + len(items) > self._max_pending:
            raise Overloaded("too many items are waiting to be written")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting += len(items)
        self._pending.append((items, answer, alone))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return answer

    async def _run(self) -> None:
        try:
            while self._pending:
                await self._flush_all(self._next())
        finally:
            self._task = None

    def _next(self) -> list[_Entry]:
        """As many entries as fit into one batch; an entry larger than a batch is flushed alone."""
        batch = [self._pending.popleft()]
        size = len(batch[0][0])
        while self._pending and size + len(self._pending[0][0]) <= self._max_batch:
            batch.append(self._pending.popleft())
            size += len(batch[-1][0])
        self._waiting -= size
        return batch

    async def _flush_all(self, batch: list[_Entry]) -> None:
        items = [item for entry in batch for item in entry[0]]
        try:
            answers = await self._flush(items)
            if len(answers) != len(items):
                raise ValueError(f"{len(answers)} answers for {len(items)} items")  # noqa: TRY301 - handled as any bug
        except LedgerUnavailable as error:
            for _, waiting, _ in batch:
                if not waiting.done():
                    waiting.set_exception(error)
        except Exception as error:  # noqa: BLE001 - whatever one item did to the code must not fail its neighbours
            await self._flush_singly(batch, error)
        else:
            at = 0
            for entry in batch:
                end = at + len(entry[0])
                _tell(entry, answers[at:end])
                at = end

    async def _flush_singly(self, batch: list[_Entry], error: Exception) -> None:
        if len(batch) > 1:
            for entry in batch:
                await self._flush_all([entry])
            return
        items = batch[0][0]
        _tell(batch[0], [error] if len(items) == 1 else [await self._flush_one(item) for item in items])

    async def _flush_one(self, item: Item) -> Answer | Exception:
        try:
            (answer,) = await self._flush([item])
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits for this item
            return error
        return answer


def _tell(entry: _Entry, answers: Sequence[Any]) -> None:
    _, waiting, alone = entry
    if waiting.done():
        return
    if not alone:
        waiting.set_result(list(answers))
    elif isinstance(answers[0], Exception):
        waiting.set_exception(answers[0])
    else:
        waiting.set_result(answers[0])
