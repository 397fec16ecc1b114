"""One stream of log lines, whoever speaks: our events, libraries, warnings, crashes."""

import contextlib
import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, TextIO

import msgspec
import structlog
from opentelemetry import trace

from carillon.domain.claims import Settled
from carillon.domain.events import Event, IntentRepeated, RouteAttempted, event_word
from carillon.domain.ports import Observer
from carillon.upkeep.redaction import Redaction, Throttle, encode, escaped, traceback_text

Format = Literal["json", "pretty", "auto"]
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50}
_WORDS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}
_DEBUG, _INFO, _WARNING, _ERROR, _CRITICAL = 10, 20, 30, 40, 50
_LONGEST_STRAY = 12_000


class Sink:
    """Where every line is finished, redacted and written; never raises, and writes whole lines only."""

    def __init__(
        self,
        stream: TextIO,
        *,
        level: str = "info",
        service: str = "carillon",
        blueprint: str = "local",
        pretty: bool = False,
        redaction: Redaction | None = None,
    ) -> None:
        self.stream = stream
        self.threshold = LEVELS[level.lower()]
        self._origin = {"service": service, "blueprint": blueprint}
        self._redaction = redaction or Redaction()
        self._throttle = Throttle()
        self._pretty = structlog.dev.ConsoleRenderer(event_key="message", colors=stream.isatty()) if pretty else None
        self._lock = threading.RLock()
        self._second, self._stamp = 0, ""

    def emit(
        self, level: int, event: str, message: str, fields: dict[str, Any], *, key: str = "", always: bool = False
    ) -> None:
        """Write one line; lines with a `key` are rate-limited under it, `always` ignores the level."""
        if level < self.threshold and not always:
            return
        left_out = self._throttle.admit(key) if key else 0
        if left_out is None:
            return
        line = self.header(level, event, message)
        line |= {name: value for name, value in fields.items() if value is not None and name not in line}
        if left_out:
            line["suppressed"] = left_out
        try:
            stamp = {"timestamp": line.pop("timestamp")}
            clean = stamp | self._redaction.fields(line, debug=level == _DEBUG)
            self.write(encode(clean) if self._pretty is None else self._readable(self._pretty, clean))
        except Exception as error:  # noqa: BLE001 - an observer must not raise, whatever it was handed
            self.write(encode(self.header(_ERROR, "unloggable", f"A line was lost to {type(error).__name__}")))

    def header(self, level: int, event: str, message: str) -> dict[str, Any]:
        """What every line begins with."""
        second, rest = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        stamp = f"{self._stamp}.{rest // 1_000_000:03d}Z"
        line = {"timestamp": stamp, "level": _WORDS[level], "event": event, "message": message}
        return line | self._origin | _span()

    @property
    def readable(self) -> bool:
        """Whether a person is reading."""
        return self._pretty is not None

    def write(self, line: str) -> None:
        """Put a finished line out and flush it: whoever waits for a line gets it now."""
        with self._lock, contextlib.suppress(OSError, ValueError, RuntimeError):
            self.stream.write(line + "\n")
            self.stream.flush()

    def _readable(self, render: structlog.dev.ConsoleRenderer, line: dict[str, Any]) -> str:
        return str(render(None, "", {name: text for name, text in escaped(line).items() if name not in self._origin}))


def _span() -> dict[str, str]:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"otel_trace_id": f"{context.trace_id:032x}", "otel_span_id": f"{context.span_id:016x}"}


_active: Sink | None = None


def active() -> Sink:
    """The configured sink; before that, one that writes JSON to stdout."""
    return _active or Sink(sys.stdout)


def _activate(sink: Sink | None) -> None:
    global _active  # noqa: PLW0603 - a process has one stdout
    _active = sink


def configure(
    format: Format = "auto",  # noqa: A002 - the option is called so
    level: str = "info",
    service: str = "carillon",
    blueprint: str = "local",
    stream: TextIO | None = None,
    *,
    secrets: Iterable[str] = (),
) -> Callable[[], None]:
    """Route everything this process says into one stream; calling the result puts things back as they were."""
    out = stream or (_active.stream if _active else sys.stdout)
    pretty = format == "pretty" or (format == "auto" and out.isatty())
    sink = Sink(out, level=level, service=service, blueprint=blueprint, pretty=pretty, redaction=Redaction(secrets))
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _from_structlog],
        wrapper_class=structlog.make_filtering_bound_logger(sink.threshold),
    )
    with contextlib.ExitStack() as stack:
        _route_crashes(sink, stack)
        _route_logging(sink, stack)
        if not pretty:
            stack.enter_context(contextlib.redirect_stdout(Stray(sink, "stdout")))
            stack.enter_context(contextlib.redirect_stderr(Stray(sink, "stderr")))
        stack.callback(structlog.reset_defaults)
        stack.callback(_activate, _active)
        _activate(sink)
        return stack.pop_all().close


def ready(addresses: Sequence[str], **hints: str) -> None:
    """Say that doors are open, at every log level: tests and operators wait for this line; hints say what to try."""
    where = ", ".join(addresses) or "no address"
    sink = active()
    if sink.readable:
        lines = [f"Carillon is ready on {where}", *(f"  {name:5} {hint}" for name, hint in hints.items())]
        sink.write("\n" + "\n".join(lines) + "\n\n")
        return
    sink.emit(_INFO, "ready", f"Ready on {where}", {"addresses": list(addresses), **hints}, always=True)


def failed_to_start(reason: str) -> None:
    """Say why the process ends before it was ready, at every log level."""
    active().emit(_ERROR, "start_failed", reason, {}, always=True)


def _from_structlog(_logger: object, method: str, line: MutableMapping[str, Any]) -> NoReturn:
    event, level = str(line.pop("event", method)), LEVELS.get(method, _ERROR)
    failed = line.pop("exc_info", None) or (method == "exception")
    error = failed if isinstance(failed, BaseException) else sys.exc_info()[1] if failed else None
    fields = {**line, "exception": traceback_text(error)}
    key = f"{event}/{level}" if level >= _WARNING else ""
    active().emit(level, event, str(fields.pop("message", event)), fields, key=key)
    raise structlog.DropEvent


class Bridge(logging.Handler):
    """Carries the standard library's log records into the sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's bad format string is still worth a line
            message = str(record.msg)
        level = max(_DEBUG, min(_CRITICAL, record.levelno // 10 * 10))
        error = record.exc_info[1] if record.exc_info else None
        event = "warning" if record.name == "py.warnings" else "log"
        key = f"{record.name}/{level}/{record.msg!s:.100}" if level >= _WARNING else ""
        self._sink.emit(level, event, message, {"logger": record.name, "exception": traceback_text(error)}, key=key)


class Stray(io.TextIOBase):
    """Stands in for stdout or stderr, so that what is printed past the log becomes lines of it."""

    def __init__(self, sink: Sink, name: str) -> None:
        super().__init__()
        self._sink, self._name, self._rest = sink, name, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > _LONGEST_STRAY:
            lines, self._rest = [*lines, self._rest], ""
        for line in filter(str.strip, lines):
            self._sink.emit(_WARNING, "stray_output", line, {"stream": self._name}, key=f"stray/{self._name}")
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._sink.stream.fileno()


def _route_logging(sink: Sink, stack: contextlib.ExitStack) -> None:
    root = logging.getLogger()
    stack.callback(root.setLevel, root.level)
    stack.callback(setattr, root, "handlers", root.handlers)
    stack.callback(logging.captureWarnings, capture=False)
    root.handlers = [Bridge(sink)]
    root.setLevel(sink.threshold)
    logging.captureWarnings(capture=True)


def granian_logging() -> dict[str, Any]:
    """What granian's `log_dictconfig` needs so that it leaves its lines to the root logger."""
    return {"handlers": {}, "loggers": {"_granian": {"propagate": True}, "granian.access": {"propagate": True}}}


def _route_crashes(sink: Sink, stack: contextlib.ExitStack) -> None:
    def crashed(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        fields = {"exception": traceback_text(error)}
        sink.emit(_CRITICAL, "uncaught_exception", f"{type(error).__name__}: {error}", fields, always=True)

    def thread_crashed(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, SystemExit):
            crashed(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)

    def unraisable(args: "sys.UnraisableHookArgs") -> None:
        message = f"{args.err_msg or 'Exception ignored'}: {args.exc_value!r}"
        sink.emit(_ERROR, "unraisable", message, {"exception": traceback_text(args.exc_value)}, key="unraisable")

    for owner, name, hook in (
        (sys, "excepthook", crashed),
        (sys, "unraisablehook", unraisable),
        (threading, "excepthook", thread_crashed),
    ):
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, hook)


# By the verdict or the outcome where an event has one, else by the event's own word.
_SAID: Final[dict[str, tuple[int, str]]] = {
    "intent_accepted": (_INFO, "Accepted {notification_type} from {producer}, routes: {routes}"),
    "duplicate": (_INFO, "{notification_type} from {producer} came again and had been accepted before"),
    "conflict": (_WARNING, "{notification_type} from {producer} reuses an idempotency key for other content"),
    "finish": (_INFO, "Sent {channel} through {provider} on attempt {attempt}"),
    "failover": (_INFO, "Failover succeeded: sent {channel} through {provider} on attempt {attempt}"),
    "retry": (_WARNING, "{provider} failed {channel} on attempt {attempt}: {error}; again in {delay_seconds} s"),
    "defer": (_WARNING, "{provider} asks {channel} to wait: {error}; again in {delay_seconds} s, no attempt spent"),
    "fail_over": (_WARNING, "{provider} failed {channel} on attempt {attempt}: {error}; {next_provider} is next"),
    "bury": (_ERROR, "Gave up on {channel} through {provider} on attempt {attempt}: {error}"),
    "lease_lost": (_WARNING, "A lease for {provider} was lost to another worker"),
    "breaker_changed": (_WARNING, "The breaker of {provider} went from {before} to {after}"),
    "trouble": (_WARNING, "{where} failed and will try again: {error}"),
    "rehomed": (_WARNING, "{routes} waiting {channel} routes lost their provider or lane and go to {provider}"),
    "pruned": (_INFO, "Removed {records} old records and {malformed_intents} malformed intents"),
}
_REPEATING: Final = frozenset({"lease_lost", "breaker_changed", "trouble"})
_ROUNDED: Final = frozenset({"duration_ms", "delay_seconds", "retry_in_seconds"})
_STALE: Final = "; it changed nothing, the lease was lost before"


def log_observer(sink: Sink | None = None) -> Observer:
    """Turn each event into a line; below the level nothing of it is formatted."""
    out = sink or active()

    def observe(event: Event) -> None:
        if isinstance(event, RouteAttempted):
            word = "failover" if event.verdict == "finish" and event.failed_over else event.verdict
        else:
            word = event.outcome if isinstance(event, IntentRepeated) else event_word(event)
        level, sentence = _SAID.get(word, (_INFO, word))
        if level >= out.threshold:
            _say(out, level, sentence, event)

    return observe


def _say(out: Sink, level: int, sentence: str, event: Event) -> None:
    fields = msgspec.to_builtins(event)
    word = fields.pop("type")
    for name in _ROUNDED & fields.keys():
        fields[name] = fields[name] and round(fields[name], 3)
    message = sentence.format_map(fields)
    if fields.get("settled") == Settled.STALE:
        message += _STALE
    # Attempts and intents are each somebody's message and never thinned out; what repeats by itself is.
    key = f"{word}/{level}/{fields.get('where') or fields.get('provider')}" if word in _REPEATING else ""
    out.emit(level, word, message, fields | {"failed_over": fields.get("failed_over") or None}, key=key)
