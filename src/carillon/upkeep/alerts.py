"""Alerts: from the outbox to every sink, at least once, under the same alert id."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from carillon.domain.alerts import Alert, AlertOutbox, DueAlert, PostponedAlert, in_order
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import AlertDelayed, AlertTold, Event, ReceiptTaken, RouteAttempted, Trouble
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint
from carillon.upkeep.logs.sink import ERROR, active

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
_LONGEST_ERROR = 500

Post = Callable[[bytes, Mapping[str, str]], Awaitable[str | None]]
"""POST a body with headers; None when the other side confirmed, otherwise what went wrong."""

Sign = Callable[[str, bytes], Mapping[str, str]]
"""The headers that sign a body under a message's id."""


class AlertSink(Protocol):
    """A receiver of alerts."""

    name: str

    async def tell(self, alert: Alert) -> str | None:
        """None once the receiver confirms, otherwise the error; a failure of the receiver is never raised."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class RelayRules(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts are claimed and sent."""

    batch: int = 50
    poll_seconds: float = 1.0
    tell_seconds: float = 5.0
    lease_seconds: float = 10.0
    """Longer than one send, because a batch is sent in parallel; alerts of a dead process wait until it expires."""


class AlertRelay:
    """Claims alerts that are due and sends them to every sink; several processes may do so at once."""

    def __init__(
        self,
        outbox: AlertOutbox,
        sinks: Sequence[AlertSink],
        *,
        chains: Mapping[str, Sequence[str]],
        clock: Clock,
        observer: Observer,
        rules: RelayRules | None = None,
    ) -> None:
        """`chains` are each channel's providers in the order of failover; alerts list providers in this order."""
        self._outbox = outbox
        self.sinks = sinks
        self._chains = chains
        self._clock = clock
        self._observe = observer
        self._rules = rules or RelayRules()
        self._rung = asyncio.Event()
        self._fruitless = 0

    def ring(self) -> None:
        """Wake the relay: there may be an alert to send."""
        self._rung.set()

    def __call__(self, event: Event) -> None:
        """Be an Observer: dead letters of this process are reported without waiting for the next poll."""
        if (isinstance(event, RouteAttempted) and event.verdict == "bury") or (
            isinstance(event, ReceiptTaken) and event.effect == "buried"
        ):
            self.ring()

    async def run(self) -> None:
        """Send alerts until cancelled."""
        while True:
            self._rung.clear()
            try:
                wait = await self.tell_due()
            except LedgerUnavailable as error:
                self._fruitless += 1
                wait = _backoff(self._fruitless)
                self._observe(Trouble(where="alerts", error=str(error), retry_in_seconds=wait))
            if self._fruitless:
                # No sink answers: further alerts must not shorten the backoff.
                await self._clock.sleep(wait)
            elif wait > 0.0:
                await self._listen(wait)

    async def tell_due(self) -> float:
        """Send the due alerts; returns the seconds until the next poll."""
        rules = self._rules
        due = await self._outbox.due_alerts(rules.batch, rules.lease_seconds)
        if not due:
            self._fruitless = 0
            return rules.poll_seconds
        faultpoint("before_alert")
        missed = await asyncio.gather(*(self._tell(due_alert) for due_alert in due))
        faultpoint("after_alert")
        later = [each for each in missed if each is not None]
        done = [due_alert.alert.alert_id for due_alert, each in zip(due, missed, strict=True) if each is None]
        if done:
            await self._outbox.told(done)
        if later:
            await self._outbox.postpone(later)
        self._fruitless = 0 if done else self._fruitless + 1
        if self._fruitless:
            return _backoff(self._fruitless)
        if len(due) == rules.batch:
            return 0.0
        return min([rules.poll_seconds, *(each.seconds for each in later)])

    async def _tell(self, due_alert: DueAlert) -> PostponedAlert | None:
        """Send to every sink that has not confirmed yet; None once all have."""
        alert = in_order(due_alert.alert, self._chains)
        open_sinks = [sink for sink in self.sinks if sink.name not in due_alert.told]
        wait = _backoff(due_alert.tries)
        confirmed = await asyncio.gather(*(self._tell_one(sink, alert, wait) for sink in open_sinks))
        if all(confirmed):
            return None
        told = [sink.name for sink, ok in zip(open_sinks, confirmed, strict=True) if ok]
        return PostponedAlert(
            alert_id=alert.alert_id, tries=due_alert.tries, told=(*due_alert.told, *told), seconds=wait
        )

    async def _tell_one(self, sink: AlertSink, alert: Alert, wait: float) -> bool:
        try:
            async with asyncio.timeout(self._rules.tell_seconds):
                error = await sink.tell(alert)
        except TimeoutError:
            error = f"no confirmation within {self._rules.tell_seconds:g} s"
        except Exception as bug:  # noqa: BLE001 - one sink's bug must not keep the others from being told
            error = f"{type(bug).__name__}: {bug}"
        number, about, channel = alert.alert_id, alert.notification_id, alert.channel
        told = AlertTold(alert_id=number, notification_id=about, channel=channel, sink=sink.name)
        if error is None:
            self._observe(told)
            return True
        fields = msgspec.structs.asdict(told)
        self._observe(AlertDelayed(**fields, error=error, retry_in_seconds=wait))
        return False

    async def _listen(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()


def _backoff(tries: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries - 1, 10))


class LogAlerts:
    """One line for each alert."""

    name = "log"

    async def tell(self, alert: Alert) -> str | None:
        fields = msgspec.to_builtins(alert)
        said = f"{alert.channel} of {alert.template_key} was given up: {alert.last_error}"
        active().emit(ERROR, "NotificationFailed", said, fields)
        return None

    async def aclose(self) -> None:
        """Nothing is open."""


class RedisAlerts:
    """One entry of a stream for each alert, its JSON in the field `event`."""

    name = "redis"

    def __init__(self, redis: "Redis | RedisCluster", stream: str) -> None:
        from redis.exceptions import RedisError  # noqa: PLC0415 - slow to load, and few processes alert by Redis

        self._failures = (RedisError, OSError)
        self._redis = redis
        self._stream = stream

    async def tell(self, alert: Alert) -> str | None:
        try:
            await self._redis.xadd(self._stream, {"event": msgspec.json.encode(alert)})
        except self._failures as error:
            return (str(error) or "Redis did not answer in time")[:_LONGEST_ERROR]
        return None

    async def aclose(self) -> None:
        await self._redis.aclose()


class WebhookAlerts:
    """One signed POST for each alert; a repeat carries the same id."""

    name = "webhook"

    def __init__(self, post: Post, sign: Sign, service: str) -> None:
        self._post = post
        self._sign = sign
        self._service = service

    async def tell(self, alert: Alert) -> str | None:
        body = msgspec.json.encode(alert)
        message_id = f"{self._service}/{alert.notification_id}/{alert.alert_id}"
        return await self._post(body, self._sign(message_id, body))

    async def aclose(self) -> None:
        """Connections belong to the shared client."""
