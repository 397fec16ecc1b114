"""The operators' endpoints for list queues: depths, job logs, failed messages and their requeueing."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from carillon.domain.admin import AdminAction
from carillon.domain.queues import Depth, FailedMessage, Policy
from carillon.upkeep.api.queues_wire import (
    ACTIONS,
    FAILED_MESSAGES,
    JOB_LOGS,
    FailedList,
    FailedMessagesQuery,
    FailedMessageView,
    JobLogList,
    JobLogQuery,
    JobLogView,
    QueueActionView,
    QueueAudit,
    QueueAuditQuery,
    QueueList,
    QueueView,
    RequeueBody,
    Requeued,
    RunsView,
)
from carillon.upkeep.metrics.queues import QueueTally, Runs
from carillon.web import OPERATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.problems import rfc3339, rfc3339_ms

_PATH = "/ops"
_FOR_ADMINISTRATORS: dict[str, Any] = {"tag": "Queues", "about": OPERATORS}
_REQUEUE = "requeue"
"""The only action of operators on a queue."""
_EXAMPLE = "q:pay:refund_initiation"
_LONGEST_TEXT = 2000
_TIMES = ("next_retry_at", "created_at", "updated_at")


class InspectedQueues(Protocol):
    """The queues of one Redis; carillon.queues.Queues implements it."""

    @property
    def handlers(self) -> dict[str, str]: ...
    def policy(self, queue: str) -> Policy: ...
    async def inspect(self, queues: Collection[str] | None = None) -> dict[str, Depth]: ...
    async def failed(
        self, queue: str, limit: int = 100, after: tuple[int, str] | None = None
    ) -> list[FailedMessage]: ...
    async def requeue(self, queue: str, ids: Collection[str] | None = None, limit: int | None = None) -> int: ...


class Records(Protocol):
    """Job logs in SQL, and the audit trail."""

    async def job_logs(self, filters: Mapping[str, Any], limit: int) -> list[dict[str, Any]]: ...
    async def note_action(self, action: AdminAction) -> int: ...
    async def actions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]: ...


class QueueOperations:
    """Answers the queue endpoints; each of several `queues` has its own handlers."""

    def __init__(self, queues: Collection[InspectedQueues], records: Records, tally: QueueTally) -> None:
        self._queues = list(queues)
        self._records = records
        self._tally = tally

    async def list_queues(self, request: Request) -> Reply:  # noqa: ARG002 - nothing can be asked for
        handlers = {queue: name for each in self._queues for queue, name in each.handlers.items()}
        depths: dict[str, Depth] = {}
        for each in self._queues:
            depths |= await each.inspect()
        policy = self._queues[0].policy
        views = [
            _view(queue, depth, handlers.get(queue), self._tally.of(queue), policy(queue))
            for queue, depth in sorted(depths.items())
        ]
        return Reply(200, QueueList(queues=views))

    async def list_failed(self, request: Request) -> Reply:
        queues, queue, depth = await self._known(request)
        query = request.query(FailedMessagesQuery)
        place, _ = FAILED_MESSAGES.place(query.cursor, 1, 1)
        after = (place["older"], place["id"]) if place else None
        found = await queues.failed(queue, query.limit + 1, after)
        columns = [{"older": one.older, "id": one.id} for one in found]
        shown, cursor = FAILED_MESSAGES.cut(found, query.limit, columns)
        messages = [failed_view(one) for one in shown]
        return Reply(200, FailedList(queue=queue, total=depth.failed, messages=messages, next_cursor=cursor))

    async def requeue(self, request: Request) -> Reply:
        queues, queue, depth = await self._known(request)
        body = request.json(RequeueBody)
        ids = None if body.ids is None else set(body.ids)
        found = depth.failed if ids is None else await count_failed(queues, queue, depth.failed, ids)
        requeued = 0
        if found and not body.dry_run:
            # Record the action first: a recorded action that failed misleads less than an unrecorded one.
            await self._records.note_action(
                AdminAction(
                    actor=request.caller.actor,
                    action=_REQUEUE,
                    reason=body.reason,
                    subject=queue,
                    detail={"ids": body.ids, "limit": body.limit, "found": found},
                )
            )
            requeued = await queues.requeue(queue, ids, body.limit)
        return Reply(200, Requeued(queue=queue, found=found, requeued=requeued, dry_run=body.dry_run))

    async def list_job_logs(self, request: Request) -> Reply:
        query = request.query(JobLogQuery)
        filters = {
            "queue": query.queue,
            "status": query.status,
            "correlation_id": query.correlation_id,
            "idempotency_key": query.idempotency_key,
        }
        place, _ = JOB_LOGS.place(query.cursor, 1, 1)
        found = await self._records.job_logs({**filters, **place}, query.limit + 1)
        rows, cursor = JOB_LOGS.cut(found, query.limit, found)
        return Reply(200, JobLogList(job_logs=[job_log_view(row) for row in rows], next_cursor=cursor))

    async def list_actions(self, request: Request) -> Reply:
        query = request.query(QueueAuditQuery)
        filters = {"action": _REQUEUE} | ({} if query.queue is None else {"subject": query.queue})
        place, _ = ACTIONS.place(query.cursor, 1, 1)
        found, total = await self._records.actions({**filters, **place}, query.limit + 1, 0)
        rows, cursor = ACTIONS.cut(found, query.limit, found)
        return Reply(200, QueueAudit(actions=[_action_view(row) for row in rows], total=total, next_cursor=cursor))

    async def _known(self, request: Request) -> tuple[InspectedQueues, str, Depth]:
        queue = request.params["queue"]
        for each in self._queues:
            depths = await each.inspect()
            if queue in depths:
                return each, queue, depths[queue]
        raise Problem("NOT_FOUND", f"there is no queue {queue}: GET {_PATH}/queues names them all")


async def count_failed(queues: InspectedQueues, queue: str, total: int, ids: Collection[str]) -> int:
    """How many failed messages have one of these ids."""
    return sum(message.id in ids for message in await queues.failed(queue, total))


def failed_view(failed: FailedMessage) -> FailedMessageView:
    """A failed message as operators see it."""
    said = failed.message
    if said is None:
        return FailedMessageView(message_id=failed.id, text=failed.raw.decode("utf-8", "replace")[:_LONGEST_TEXT])
    return FailedMessageView(
        message_id=failed.id,
        action=said.action,
        attempts=said.attempts,
        max_attempts=said.max_attempts,
        correlation_id=said.correlation_id,
        idempotency_key=said.idempotency_key,
        created_at=said.created_at,
        payload=said.payload,
    )


def job_log_view(row: Mapping[str, Any]) -> JobLogView:
    """A row of `job_logs` as operators see it."""
    times = {name: row[name] and rfc3339(row[name]) for name in _TIMES}
    return JobLogView(**{name: times.get(name, row[name]) for name in JobLogView.__struct_fields__})


def _action_view(row: Mapping[str, Any]) -> QueueActionView:
    detail = row["detail"]
    ids = detail.get("ids")
    return QueueActionView(
        id=row["action_id"],
        at=rfc3339_ms(row["at"]),
        actor=row["actor"],
        action=row["action"],
        queue=row["subject"],
        reason=row["reason"],
        # The command line writes an empty list where no id is named.
        chosen=len(ids) if ids else None,
        limit=detail.get("limit"),
        found=detail.get("found"),
    )


def _view(queue: str, depth: Depth, handler: str | None, runs: Runs, policy: Policy) -> QueueView:
    number = runs.success + runs.retry + runs.failed
    return QueueView(
        queue=queue,
        main=depth.main,
        processing=depth.processing,
        delayed=depth.delayed,
        failed=depth.failed,
        oldest_seconds=depth.oldest_seconds,
        handler=handler,
        runs=RunsView(
            success=runs.success,
            retry=runs.retry,
            failed=runs.failed,
            swept=runs.swept,
            average_ms=round(runs.seconds / number * 1000, 3) if number else None,
        ),
        policy=policy,
    )


def endpoints(queues: Collection[InspectedQueues], records: Records, tally: QueueTally) -> list[Endpoint]:
    """For administrators of every tenant: queues are the whole system's."""
    operations = QueueOperations(queues, records, tally)
    return [*_reading(operations), _audited(operations), _changing(operations)]


def _reading(operations: QueueOperations) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/queues",
            call=operations.list_queues,
            name="listQueues",
            summary="Show every queue: its depths, the age of its next message, its handler",
            answers=(Answer(status=200, description="Every queue", kind=QueueList),),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/job-logs",
            call=operations.list_job_logs,
            name="listJobLogs",
            summary="List job logs, newest first",
            query=JobLogQuery,
            answers=(Answer(status=200, description="Those that match", kind=JobLogList),),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/queues/{{queue}}/failed",
            call=operations.list_failed,
            name="listFailedMessages",
            summary="List the failed messages of a queue, newest first",
            path_examples={"queue": _EXAMPLE},
            query=FailedMessagesQuery,
            answers=(Answer(status=200, description="One page", kind=FailedList),),
            **_FOR_ADMINISTRATORS,
        ),
    ]


def _audited(operations: QueueOperations) -> Endpoint:
    return Endpoint(
        method="GET",
        path=f"{_PATH}/audit",
        call=operations.list_actions,
        name="listQueueActions",
        summary="Show who requeued failed messages, and why, newest first",
        query=QueueAuditQuery,
        answers=(Answer(status=200, description="The newest", kind=QueueAudit),),
        **_FOR_ADMINISTRATORS,
    )


def _changing(operations: QueueOperations) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/queues/{{queue}}/failed/requeue",
        call=operations.requeue,
        name="requeueFailedMessages",
        summary="Requeue failed messages",
        description="They go to the end of their queue, the oldest first, with their attempts at 0. No body means all "
        "of them; `dry_run` only counts.",
        path_examples={"queue": _EXAMPLE},
        body=RequeueBody,
        body_optional=True,
        body_examples={"count": {"dry_run": True}, "some": {"limit": 100, "reason": "the gateway is back"}},
        answers=(Answer(status=200, description="How many went back", kind=Requeued),),
        **_FOR_ADMINISTRATORS,
    )
