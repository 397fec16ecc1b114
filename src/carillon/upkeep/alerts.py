"""Tells those outside what was given up: from the outbox to every sink, at least once, under the same alert id."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from carillon.domain.alerts import Alert, AlertOutbox, Postponed, Telling, in_order
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import AlertDelayed, AlertTold, Event, ReceiptTaken, RouteAttempted, Trouble
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint

FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0


class AlertSink(Protocol):
    """Somebody who is told."""

    name: str

    async def tell(self, alert: Alert) -> str | None:
        """None once it is confirmed, otherwise what went wrong; never raises for what the other side did."""
        ...

    async def aclose(self) -> None:
        """Give connections back."""
        ...


class RelayRules(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts are taken and told."""

    batch: int = 50
    poll_seconds: float = 1.0
    tell_seconds: float = 5.0
    lease_seconds: float = 10.0
    """Longer than telling takes, because a batch is told side by side; what a dead process held waits for its end."""


class AlertRelay:
    """Takes alerts that are due and tells them; several processes may do so at once."""

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
        """`chains` are each channel's providers in the order of failover, which is the order they are told in."""
        self._outbox = outbox
        self.sinks = sinks
        self._chains = chains
        self._clock = clock
        self._observe = observer
        self._rules = rules or RelayRules()
        self._rung = asyncio.Event()
        self._fruitless = 0

    def ring(self) -> None:
        """Say that there may be something to tell."""
        self._rung.set()

    def __call__(self, event: Event) -> None:
        """Be an Observer: burials of this process are told without waiting for the next look."""
        if (isinstance(event, RouteAttempted) and event.verdict == "bury") or (
            isinstance(event, ReceiptTaken) and event.effect == "buried"
        ):
            self.ring()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._rung.clear()
            try:
                wait = await self.tell_due()
            except LedgerUnavailable as error:
                self._fruitless += 1
                wait = _backoff(self._fruitless)
                self._observe(Trouble(where="alerts", error=str(error), retry_in_seconds=wait))
            if self._fruitless:
                # Nobody listens: further alerts are no reason to knock more often.
                await self._clock.sleep(wait)
            elif wait > 0.0:
                await self._listen(wait)

    async def tell_due(self) -> float:
        """Tell what is due; answers how long nothing more is expected."""
        rules = self._rules
        tellings = await self._outbox.due_alerts(rules.batch, rules.lease_seconds)
        if not tellings:
            self._fruitless = 0
            return rules.poll_seconds
        faultpoint("before_alert")
        missed = await asyncio.gather(*(self._tell(telling) for telling in tellings))
        faultpoint("after_alert")
        later = [each for each in missed if each is not None]
        done = [telling.alert.alert_id for telling, each in zip(tellings, missed, strict=True) if each is None]
        if done:
            await self._outbox.told(done)
        if later:
            await self._outbox.postpone(later)
        self._fruitless = 0 if done else self._fruitless + 1
        if self._fruitless:
            return _backoff(self._fruitless)
        if len(tellings) == rules.batch:
            return 0.0
        return min([rules.poll_seconds, *(each.seconds for each in later)])

    async def _tell(self, telling: Telling) -> Postponed | None:
        """Tell everybody who has not confirmed yet; None when all have by now."""
        alert = in_order(telling.alert, self._chains)
        open_sinks = [sink for sink in self.sinks if sink.name not in telling.told]
        wait = _backoff(telling.tries)
        confirmed = await asyncio.gather(*(self._tell_one(sink, alert, wait) for sink in open_sinks))
        if all(confirmed):
            return None
        told = [sink.name for sink, ok in zip(open_sinks, confirmed, strict=True) if ok]
        return Postponed(alert_id=alert.alert_id, tries=telling.tries, told=(*telling.told, *told), seconds=wait)

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
