"""Where a process's events go: log lines, numbers, and spans where somebody wants them."""

import sys

from carillon.config.settings import Settings
from carillon.domain.events import Event
from carillon.domain.ports import Observer
from carillon.system import SystemClock
from carillon.upkeep.console.series import Series
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.logs.sink import LogSink
from carillon.upkeep.metrics.meters import Metrics
from carillon.upkeep.metrics.otlp import configure_metrics, shut_down
from carillon.upkeep.metrics.queue_instruments import QUEUES
from carillon.upkeep.metrics.queue_meters import QueueMetrics
from carillon.upkeep.metrics.traces import Traces, configure_traces

END_SECONDS = 2.0


class Telemetry:
    """Every observer of one process; is one itself."""

    def __init__(self, settings: Settings, sink: LogSink | None = None) -> None:
        self._meters = configure_metrics(stdout=settings.metrics.stdout, otlp=True, service=settings.service)
        self._tracers = configure_traces(stdout=settings.traces.stdout, service=settings.service)
        named, only = settings.metrics.instruments, settings.metrics.only
        self.metrics = Metrics(table={name: one for name, one in named.items() if name not in QUEUES}, only=only)
        lines = logs.log_observer(sink, sentences=settings.log.sentences, name_people=settings.log.name_people)
        self.series = Series(SystemClock())
        observers: list[Observer] = [lines, self.series]
        # Without the SDK nobody can ever ask, and counting is a tenth of a message; a host may load it later.
        if sink is not None or "opentelemetry.sdk.metrics" in sys.modules:
            observers.append(self.metrics)
        if settings.queue or settings.push:
            observers.append(QueueMetrics(table={name: named[name] for name in QUEUES.keys() & named}, only=only))
        self._observers: list[Observer] = observers if self._tracers is None else [Traces(self._tracers, observers)]

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        for observer in self._observers:
            observer(event)

    def also(self, observer: Observer) -> None:
        """From now on, let this one see every event as well."""
        self._observers.append(observer)

    async def end(self) -> None:
        """Let the last numbers and spans leave."""
        await shut_down([one for one in (self._meters, self._tracers) if one is not None], END_SECONDS)
