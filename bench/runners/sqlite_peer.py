"""Puts jobs into a queue of another library on SQLite, one commit each, and drains them in one thread."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JOB = json.dumps({"to": "device-1", "text": "Hi Ada, welcome! Start here: https://example.org/start"})


def huey(path: str, durable: bool) -> tuple[Callable[[], Any], Callable[[], bool]]:  # noqa: FBT001 - from the command line
    """Its own default is as durable as Carillon: WAL, and a synchronous commit for each task."""
    from huey import SqliteHuey  # type: ignore[import-not-found]  # noqa: PLC0415 - installed apart

    queue = SqliteHuey(filename=path, results=False, fsync=durable)

    @queue.task()  # type: ignore[untyped-decorator]
    def job(data: str) -> None:
        del data

    def run() -> bool:
        task = queue.dequeue()
        if task is None:
            return False
        queue.execute(task)
        return True

    return lambda: job(JOB), run


def litequeue(path: str, durable: bool) -> tuple[Callable[[], Any], Callable[[], bool]]:  # noqa: FBT001 - from the command line
    """Its own default does not wait for the disk (synchronous = NORMAL)."""
    from litequeue import LiteQueue  # type: ignore[import-not-found]  # noqa: PLC0415 - installed apart

    queue = LiteQueue(path)
    queue.conn.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")

    def run() -> bool:
        message = queue.pop()
        if message is None:
            return False
        queue.done(message.message_id)
        return True

    return lambda: queue.put(JOB), run


def main(folder: str, name: str, path: str, jobs: int, *, durable: bool) -> None:
    """Jobs a second, in and out."""
    sys.path.insert(0, folder)
    put, run = {"huey": huey, "litequeue": litequeue}[name](path, durable)
    began = time.perf_counter()
    for _ in range(jobs):
        put()
    accepted = time.perf_counter()
    done = 0
    while run():
        done += 1
    drained = time.perf_counter()
    if done != jobs:
        raise RuntimeError(f"{name} ran {done} of {jobs} jobs")
    print(json.dumps({"accept": jobs / (accepted - began), "drain": jobs / (drained - accepted)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], str(Path(sys.argv[3])), int(sys.argv[4]), durable=sys.argv[5] == "durable")
