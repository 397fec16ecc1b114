"""Exports metrics and traces: to stdout as log lines, and to a collector over OTLP as the OTEL_* variables ask."""

import asyncio
import contextlib
import importlib
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
from opentelemetry import metrics as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from carillon.domain.errors import ConfigurationError
from carillon.domain.events import (
    Event,
    IntentAccepted,
    IntentMalformed,
    IntentRepeated,
    PersonSought,
    RequestServed,
    RouteAttempted,
)
from carillon.domain.ports import Observer
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.logs.redaction import encode

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

Signal = Literal["metrics", "traces"]
_EXPORTERS = {"metrics": ("metric_exporter", "OTLPMetricExporter"), "traces": ("trace_exporter", "OTLPSpanExporter")}
_USUAL = "http/protobuf"
_PROTOCOLS = {"http/protobuf": ("http", "otlp"), "grpc": ("grpc", "otlp-grpc")}
"""Where the exporter of each protocol is, and the extra that installs it."""
_KNOWN = frozenset({"otlp", "console", "none"})
Traced = IntentAccepted | IntentRepeated | IntentMalformed | PersonSought | RequestServed | RouteAttempted

_TRACE = re.compile(r"[0-9a-f]{32}", re.IGNORECASE)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.IGNORECASE)
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_WISHED: ContextVar[int | None] = ContextVar("wished_trace", default=None)
"""The trace that the next span begins, when an intent names one."""


class TelemetryProvider(Protocol):
    """What the SDK's providers have in common."""

    def shutdown(self) -> Any: ...  # noqa: ANN401 - the SDK's own signatures differ


class LogStream:
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


def refuse_unknown_exporters() -> None:
    """Refuse to start where the standard variables name an exporter that this process does not have."""
    signals: tuple[Signal, ...] = ("metrics", "traces")
    for signal in signals:
        strange = sorted(_named(signal) - _KNOWN)
        if strange and not is_disabled():
            # Prometheus reads a collector, or takes OTLP itself: no process of ours serves /metrics.
            known = ", ".join(sorted(_KNOWN))
            raise ConfigurationError(f"OTEL_{signal.upper()}_EXPORTER: there is no {strange[0]!r}; write {known}")


def exported() -> list[str]:
    """What would leave over OTLP, and how; raises what the start would raise, and exports nothing."""
    if is_disabled():
        return []
    refuse_unknown_exporters()
    signals: tuple[Signal, ...] = ("metrics", "traces")
    return [f"{signal} over OTLP as {_protocol(signal)[1]}" for signal in signals if _otlp_class(signal) is not None]


def otlp_exporter(signal: Signal) -> Any | None:  # noqa: ANN401 - one of four classes that may not be installed
    """An exporter to a collector, if the standard variables ask for one; ConfigurationError for what is not spoken."""
    exporter = _otlp_class(signal)
    return None if exporter is None else exporter()


def _otlp_class(signal: Signal) -> Any | None:  # noqa: ANN401 - as above
    named = _named(signal)
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    if "otlp" not in named and (named or not any(os.environ.get(name) for name in endpoints)):
        return None
    variable, spoken = _protocol(signal)
    if spoken not in _PROTOCOLS:
        raise ConfigurationError(f"{variable}: {spoken!r} is not spoken; write {' or '.join(_PROTOCOLS)}")
    place, extra = _PROTOCOLS[spoken]
    module, name = _EXPORTERS[signal]
    try:
        exporter = getattr(importlib.import_module(f"opentelemetry.exporter.otlp.proto.{place}.{module}"), name)
    except ModuleNotFoundError:
        asked = variable or next(
            (each for each in endpoints if os.environ.get(each)), f"OTEL_{signal.upper()}_EXPORTER"
        )
        raise ConfigurationError(
            f"{asked}: {signal} over OTLP as {spoken} need an extra: pip install 'carillon[{extra}]'"
        ) from None
    return exporter


def _protocol(signal: Signal) -> tuple[str | None, str]:
    """The variable that names the protocol, and the protocol; that of the signal goes before that of all."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(variable, "").strip():
            return variable, os.environ[variable].strip().lower()
    return None, _USUAL


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

    exporters: list[MetricExporter] = [ConsoleMetricExporter(LogStream(), _metrics_line)] if stdout else []  # type: ignore[arg-type]
    if collector is not None:
        exporters.append(collector)
    try:
        readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    except ValueError:
        raise ConfigurationError("OTEL_METRIC_EXPORT_INTERVAL must be a positive number of milliseconds") from None
    provider = MeterProvider(readers, resource(service))
    otel.set_meter_provider(provider)
    return provider


def _metrics_line(data: "MetricsData") -> str:
    begin = logs.active().header(logs.LEVELS["info"], "metrics", "Numbers since the start")
    return encode(begin | msgspec.json.decode(data.to_json(indent=None)))


def configure_traces(*, stdout: bool, service: str = "carillon") -> "TracerProvider | None":
    """Export to stdout, and over OTLP where the standard variables say so; None when nothing is to be exported."""
    if is_disabled():
        return None
    stdout = stdout or wants_console("traces")
    collector = otlp_exporter("traces")
    if not stdout and collector is None:
        return None
    # The SDK costs time and memory at import, which only those who export should pay.
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import (  # noqa: PLC0415
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SimpleSpanProcessor,
    )
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return _WISHED.get() or super().generate_trace_id()

    provider = TracerProvider(resource=resource(service), id_generator=Ids())
    if stdout:
        # At once, like log lines: a batch that is full would drop spans.
        console = ConsoleSpanExporter(out=LogStream(), formatter=_span_line)  # type: ignore[arg-type]
        provider.add_span_processor(SimpleSpanProcessor(console))
    if collector is not None:
        provider.add_span_processor(BatchSpanProcessor(collector))
    return provider


class Traces:
    """An Observer in front of others: what they write while they see an event carries its span's ids."""

    def __init__(self, provider: trace.TracerProvider, observers: Sequence[Observer]) -> None:
        self._tracer = provider.get_tracer("carillon")
        self._observers = tuple(observers)

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        if not isinstance(event, Traced):
            self._tell(event)
            return
        end = time.time_ns()
        name, kind, wrong = _told(event)
        begin = end - int(getattr(event, "duration_ms", 0.0) * 1_000_000)
        trace_id, parent = _origin(getattr(event, "trace_id", None))
        token = _WISHED.set(trace_id)
        try:
            span = self._tracer.start_span(
                name, parent, kind, _attributes(event), start_time=begin, record_exception=False
            )
        finally:
            _WISHED.reset(token)
        if wrong is not None:
            span.set_status(Status(StatusCode.ERROR, wrong))
        with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            self._tell(event)
        span.end(end)

    def _tell(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)


def _told(event: Traced) -> tuple[str, SpanKind, str | None]:
    """The span's name, its kind, and what went wrong, if anything did."""
    match event:
        case IntentAccepted():
            return "intent accepted", SpanKind.CONSUMER, None
        case IntentRepeated():
            return f"intent {event.outcome}", SpanKind.CONSUMER, "conflict" if event.outcome == "conflict" else None
        case IntentMalformed():
            return "intent malformed", SpanKind.CONSUMER, event.failure_code
        case PersonSought():
            return "person sought", SpanKind.CLIENT, "failed" if event.result == "failed" else None
        case RouteAttempted():
            wrong = None if event.verdict == "finish" else event.classification or event.outcome
            return f"route {event.channel}", SpanKind.PRODUCER, wrong
        case RequestServed():
            wrong = str(event.status) if event.status >= _SERVER_ERROR else None
            # A path that is not served may be anything: names of spans are few.
            name = event.method if event.status == _NOT_FOUND else f"{event.method} {event.path}"
            return name, SpanKind.SERVER, wrong


def _attributes(event: Traced) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(event)
    for name in ("type", "duration_ms"):
        fields.pop(name, None)
    clean = logs.active().clean(fields)
    return {name: value for name, value in clean.items() if isinstance(value, str | bool | int | float)}


def _origin(said: str | None) -> tuple[int | None, Context | None]:
    """A trace that an intent names is begun under that id; a traceparent also names the span above."""
    above = _TRACEPARENT.fullmatch(said) if said else None
    if above is not None:
        flags = TraceFlags(int(above[3], 16))
        context = SpanContext(int(above[1], 16), int(above[2], 16), is_remote=True, trace_flags=flags)
        if context.is_valid:
            return None, trace.set_span_in_context(trace.NonRecordingSpan(context))
    if said and _TRACE.fullmatch(said):
        return int(said, 16) or None, Context()
    return None, None


def _span_line(span: "ReadableSpan") -> str:
    begin = logs.active().header(logs.LEVELS["info"], "span", span.name)
    return encode(begin | msgspec.json.decode(span.to_json(indent=None)))
