"""Spans about what happens, made from events when they are over, so that nobody pays for them who has none."""

import re
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

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
from carillon.upkeep.metrics import otlp as exporting

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

Traced = IntentAccepted | IntentRepeated | IntentMalformed | PersonSought | RequestServed | RouteAttempted

_TRACE = re.compile(r"[0-9a-f]{32}", re.IGNORECASE)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.IGNORECASE)
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_WISHED: ContextVar[int | None] = ContextVar("wished_trace", default=None)
"""The trace that the next span begins, when an intent names one."""


def configure_traces(*, stdout: bool, service: str = "carillon") -> "TracerProvider | None":
    """Export to stdout, and over OTLP where the standard variables say so; None when nothing is to be exported."""
    if exporting.is_disabled():
        return None
    stdout = stdout or exporting.wants_console("traces")
    collector = exporting.otlp_exporter("traces")
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

    provider = TracerProvider(resource=exporting.resource(service), id_generator=Ids())
    if stdout:
        # At once, like log lines: a batch that is full would drop spans.
        console = ConsoleSpanExporter(out=exporting.Lines(), formatter=_line)  # type: ignore[arg-type]
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


def _line(span: "ReadableSpan") -> str:
    begin = logs.active().header(logs.LEVELS["info"], "span", span.name)
    return encode(begin | msgspec.json.decode(span.to_json(indent=None)))
