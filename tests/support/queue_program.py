"""Another team's program on our queues: what a handler does stands in the payload, what it did in a file."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from carillon.domain.events import Event, event_word
from carillon.queues import Job, Permanent, Policy, Queues, QueueUpkeep


def tell(event: str, **fields: Any) -> None:
    """One line, past every buffer: a process that is killed has said what it has said."""
    os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


def observe(event: Event) -> None:
    fields = msgspec.to_builtins(event)
    fields.pop("type")
    tell(event_word(event), **fields)


class Diary:
    """What handlers did, one line each, appended whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, job: Job) -> None:
        line = {
            "what": what,
            "queue": job.queue,
            "id": job.id,
            "action": job.action,
            "attempts": job.attempts,
            "max_attempts": job.max_attempts,
            "correlation_id": job.correlation_id,
            "idempotency_key": job.idempotency_key,
            "payload": job.payload,
            "at": time.time(),
            "pid": os.getpid(),
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


def closed(job: Job) -> bool:
    return "gate" in job.payload and not Path(job.payload["gate"]).exists()


async def carry_out(job: Job, diary: Diary) -> None:
    diary.note("begin", job)
    while closed(job):  # noqa: ASYNC110 - another process opens the gate
        await asyncio.sleep(0.02)
    if "sleep" in job.payload:
        await asyncio.sleep(job.payload["sleep"])
    if "once" in job.payload:
        async with job.once(job.payload["once"]) as first:
            if first:
                diary.note("effect", job)
    act(job)
    diary.note("end", job)


def carry_out_plainly(job: Job, diary: Diary) -> None:
    diary.note("begin", job)
    while closed(job):
        time.sleep(0.02)
    if "sleep" in job.payload:
        time.sleep(job.payload["sleep"])
    if "once" in job.payload:
        with job.once(job.payload["once"]) as first:
            if first:
                diary.note("effect", job)
    act(job)
    diary.note("end", job)


def act(job: Job) -> None:
    match job.payload.get("do"):
        case "raise":
            raise ValueError(job.payload.get("say", "as told"))
        case "raise_first":
            if job.attempts < job.payload["times"]:
                raise ValueError("not yet")
        case "permanent":
            raise Permanent("never")
        case "block":
            time.sleep(job.payload["seconds"])
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leave":
            sys.exit(3)
        case _:
            pass


def built(settings: dict[str, Any]) -> Queues:
    diary = Diary(Path(settings["diary"]))
    queues = Queues(
        os.environ["REDIS_URL"],
        database_url=os.environ.get("DATABASE_URL"),
        service=settings.get("service", "carillon"),
        policies={name: Policy(**policy) for name, policy in settings["queues"].items()},
        beat=QueueUpkeep(**settings.get("beat", {})),
        observer=observe,
        allow_unsafe=settings.get("allow_unsafe", True),
        **settings.get("options", {}),
    )
    for queue in settings["queues"]:
        if queue.endswith("_plain"):

            def plain(job: Job) -> None:
                carry_out_plainly(job, diary)

            queues.handler(queue)(plain)
        elif queue != "*":

            async def waiting(job: Job) -> None:
                await carry_out(job, diary)

            queues.handler(queue, action=settings.get("action", "job"))(waiting)
    return queues


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with built(json.loads(os.environ["QUEUES"])) as queues:
        await queues.run(stop, lambda: tell("ready", addresses=[]))
    tell("left")


if __name__ == "__main__":
    asyncio.run(main())
