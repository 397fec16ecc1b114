"""Batches that form by themselves: whatever arrives during one flush goes into the next and is answered after it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from carillon.domain.errors import LedgerUnavailable, Overloaded

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Coalescer(Generic[Item, Answer]):
    """Collects the items of many callers into few flushes; each caller waits for the answer to its own item."""

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
        self._pending: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item; the future is answered after the flush that carried it has committed."""
        if len(self._pending) >= self._max_pending:
            raise Overloaded("too many items are waiting to be written")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._pending.append((item, answer))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return answer

    async def drain(self) -> None:
        """Wait until everything queued so far has been answered."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            while self._pending:
                size = min(self._max_batch, len(self._pending))
                await self._flush_all([self._pending.popleft() for _ in range(size)])
        finally:
            self._task = None

    async def _flush_all(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._flush([item for item, _ in batch])
            answered = list(zip(batch, answers, strict=True))
        except LedgerUnavailable as error:
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
        except Exception as error:  # noqa: BLE001 - whatever one item did to the code must not fail its neighbours
            await self._flush_singly(batch, error)
        else:
            for (_, waiting), answer in answered:
                if not waiting.done():
                    waiting.set_result(answer)

    async def _flush_singly(self, batch: list[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
        if len(batch) == 1:
            if not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for entry in batch:
            await self._flush_all([entry])
