"""Exports metrics and traces: to stdout as log lines, and to a collector over OTLP as the OTEL_* variables ask."""

import asyncio
import contextlib
import importlib
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from opentelemetry import metrics as otel

from carillon.domain.errors import ConfigurationError
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.logs.redaction import encode

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData
    from opentelemetry.sdk.resources import Resource

Signal = Literal["metrics", "traces"]
_EXPORTERS = {"metrics": ("metric_exporter", "OTLPMetricExporter"), "traces": ("trace_exporter", "OTLPSpanExporter")}
_SPOKEN = "http/protobuf"


class TelemetryProvider(Protocol):
    """What the SDK's providers have in common."""

    def shutdown(self) -> Any: ...  # noqa: ANN401 - the SDK's own signatures differ


class Lines:
    """The log's stream as an exporter sees it, so that telemetry and log lines never cut each other."""

    def write(self, line: str) -> None:
        logs.active().write(line)

    def flush(self) -> None:
        """Nothing to do: whole lines are flushed as they are written."""


def is_disabled() -> bool:
    """Whether the standard switch turns all telemetry off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def wants_console(signal: Signal) -> bool:
    """Whether the standard variables ask for stdout."""
    return "console" in _named(signal)


def otlp_exporter(signal: Signal) -> Any | None:  # noqa: ANN401 - one of two classes that may not be installed
    """An exporter to a collector, if the standard variables ask for one; None otherwise."""
    named = _named(signal)
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    if "otlp" not in named and (named or not any(os.environ.get(name) for name in endpoints)):
        return None
    protocols = ("OTEL_EXPORTER_OTLP_PROTOCOL", f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    spoken = next((os.environ[name] for name in reversed(protocols) if os.environ.get(name)), _SPOKEN)
    if spoken != _SPOKEN:
        message = f"Over OTLP only {_SPOKEN} is spoken, not {spoken}: {signal} go to the endpoint in that"
        logs.active().emit(logs.LEVELS["warning"], "otlp_protocol", message, {})
    module, name = _EXPORTERS[signal]
    try:
        return getattr(importlib.import_module(f"opentelemetry.exporter.otlp.proto.http.{module}"), name)()
    except ModuleNotFoundError:
        message = "An OTLP endpoint is set and nothing is exported to it: install carillon[otlp]"
        logs.active().emit(logs.LEVELS["warning"], "otlp_missing", message, {})
        return None


def resource(service: str) -> "Resource":
    """Who is speaking; the standard variables may say it otherwise."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - the SDK is loaded only where it is used

    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": service})


async def shut_down(providers: Iterable[TelemetryProvider], seconds: float) -> None:
    """Let the last numbers and spans leave, for so long and no longer: a collector that is away must not hold us up."""
    ends = [_ended(provider) for provider in providers]
    if ends:
        await asyncio.wait(ends, timeout=seconds)


def _ended(provider: TelemetryProvider) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            provider.shutdown()
        finally:
            # Nobody may be waiting any more, and the loop may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.cancel)

    # From another thread, because gauges ask this loop; a daemon, because nobody waits for it any longer than this.
    threading.Thread(target=run, name="telemetry-end", daemon=True).start()
    return done


def _named(signal: Signal) -> set[str]:
    said = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    return {word.strip().lower() for word in said.split(",") if word.strip()}


def configure_metrics(*, stdout: bool, otlp: bool = True, service: str = "carillon") -> "MeterProvider | None":
    """Export metrics to stdout and over OTLP as the settings say; None, with no SDK loaded, where neither is asked."""
    if is_disabled():
        return None
    stdout = stdout or wants_console("metrics")
    collector = otlp_exporter("metrics") if otlp else None
    if not stdout and collector is None:
        return None
    # Imported here: the SDK costs time and memory that a process without exports should not pay.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader  # noqa: PLC0415

    exporters: list[MetricExporter] = [ConsoleMetricExporter(Lines(), _line)] if stdout else []  # type: ignore[arg-type]
    if collector is not None:
        exporters.append(collector)
    try:
        readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    except ValueError:
        raise ConfigurationError("OTEL_METRIC_EXPORT_INTERVAL must be a positive number of milliseconds") from None
    provider = MeterProvider(readers, resource(service))
    otel.set_meter_provider(provider)
    return provider


def _line(data: "MetricsData") -> str:
    begin = logs.active().header(logs.LEVELS["info"], "metrics", "Numbers since the start")
    return encode(begin | msgspec.json.decode(data.to_json(indent=None)))
