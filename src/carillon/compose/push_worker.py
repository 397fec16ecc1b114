"""The worker on a RabbitMQ queue; imported only where it runs: its clients are an extra and slow to load."""

import os
import socket
from typing import Any

from carillon.blueprints.push_worker import wire
from carillon.compose import from_settings
from carillon.compose.outbound import build_worker
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.templates import preparing
from carillon.config.sections import Push
from carillon.ledger.opening import Ledger
from carillon.ledger.rabbitmq.backlog import QueueRules, RabbitBacklog
from carillon.ledger.rabbitmq.connection import BrokerRules
from carillon.ledger.rabbitmq.deliveries import LEAVE_SECONDS, ClaimRules
from carillon.ledger.rabbitmq.marks import MarkRules, Marks
from carillon.outbound.breakers import RecoverableBreakers
from carillon.outbound.shutdown import Deadline
from carillon.outbound.targets import Targets
from carillon.system import new_id, system_dice


class PushWorker:
    """A worker over the deliveries of one queue."""

    def __init__(
        self,
        process: Process,
        push: Push,
        *,
        ledger: Ledger,
        redis: Any,  # noqa: ANN401 - a Redis client
        breakers: RecoverableBreakers,
        targets: Targets,
        providers: ProvidersPart,
    ) -> None:
        self._settings = process.settings
        self._push = push
        ((self._channel, (self._provider, *_)),) = process.chains.items()
        self.backlog = self._backlog(process, ledger, redis)
        self.worker = build_worker(
            process.settings,
            backlog=self.backlog,
            signal=self.backlog.signal,
            providers=providers.providers,
            breakers=breakers,
            chains=process.chains,
            clock=process.clock,
            observer=process.observe,
            owner=socket.gethostname(),
            targets=targets,
            preparing={"preparer": preparing(process.settings, push, self._provider, providers.tools, breakers)},
        )

    async def leave(self, deadline: Deadline) -> None:
        """Return unstarted deliveries to the queue and close the connection."""
        await self.backlog.aclose(min(LEAVE_SECONDS, deadline.step()))

    def _backlog(self, process: Process, ledger: Ledger, redis: Any) -> RabbitBacklog:  # noqa: ANN401 - as above
        push, settings = self._push, self._settings
        # Unique to this process, so that it recognises its own marks.
        name = f"{socket.gethostname()}/{os.getpid()}/{new_id()}"
        marks = MarkRules(
            holder_prefix=f"{settings.service}:holder:",
            mark_seconds=push.mark_seconds,
            takeover_after_seconds=push.takeover_after,
        )
        pause = push.requeue_pause_seconds * settings.drill.time_scale
        return RabbitBacklog(
            rules=QueueRules(
                broker=self._broker(),
                claims=self._claims(),
                pause_seconds=pause,
                lease_seconds=settings.ledger.lease_seconds,
            ),
            decode=wire.decode,
            reason=wire.reason,
            marks=Marks(redis, name, marks),
            audit=ledger,
            clock=process.clock,
            observer=process.observe,
            dice=system_dice,
        )

    def _broker(self) -> BrokerRules:
        push = self._push
        return BrokerRules(
            url=push.rabbitmq_url,
            queue=push.queue,
            failed_queue=push.failed_queue,
            prefetch=push.prefetch,
            exchange=push.exchange,
        )

    def _claims(self) -> ClaimRules:
        policies, lanes = from_settings.policies(self._settings), from_settings.lanes(self._settings)
        policy = self._provider if self._provider in policies.policies else policies.name_for("system", self._channel)
        return ClaimRules(
            channel=self._channel,
            provider=self._provider,
            policy=policy,
            lane=lanes.queued()[0].rank,
            max_attempts=policies.get(policy).budget,
        )
