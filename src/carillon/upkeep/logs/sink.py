"""The sink that completes, redacts and writes every log line."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TextIO

from opentelemetry import trace

from carillon.upkeep.logs.redaction import Redaction, Throttle, encode, escaped

if TYPE_CHECKING:
    from structlog.dev import ConsoleRenderer

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50}
DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50
_WORDS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}


class LogSink:
    """Completes, redacts and writes every line; never raises, and writes whole lines only."""

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
        self._pretty = _renderer(stream) if pretty else None
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
            clean = stamp | self._redaction.fields(line, debug=level == DEBUG)
            self.write(encode(clean) if self._pretty is None else self._readable(self._pretty, clean))
        except Exception as error:  # noqa: BLE001 - an observer must not raise, whatever it was handed
            self.write(encode(self.header(ERROR, "unloggable", f"A log line was lost: {type(error).__name__}")))

    def ready(self, addresses: Sequence[str], hints: Mapping[str, str]) -> None:
        """Write where the process listens and what to try, at every level: people paste it, so it is whole."""
        where = ", ".join(addresses) or "no address"
        shown = {name: self._redaction.without_secrets(hint) for name, hint in hints.items()}
        if self._pretty is None:
            line = self.header(INFO, "ready", f"Ready on {where}")
            self.write(encode(line | {"addresses": list(addresses), **shown}))
            return
        lines = [f"Carillon is ready on {where}", *(f"  {name:7} {hint}" for name, hint in shown.items())]
        self.write("\n" + "\n".join(lines) + "\n\n")

    def header(self, level: int, event: str, message: str) -> dict[str, Any]:
        """The first fields of every line."""
        second, rest = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        stamp = f"{self._stamp}.{rest // 1_000_000:03d}Z"
        line = {"timestamp": stamp, "level": _WORDS[level], "event": event, "message": message}
        return line | (_speaker.get() or self._origin) | _span()

    def clean(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The redacted fields."""
        return self._redaction.fields(fields)

    def write(self, line: str) -> None:
        """Write a finished line and flush it, so that a reader of the stream sees it at once."""
        with self._lock, contextlib.suppress(OSError, ValueError, RuntimeError):
            self.stream.write(line + "\n")
            self.stream.flush()

    def _readable(self, render: "ConsoleRenderer", line: dict[str, Any]) -> str:
        return str(render(None, "", {name: text for name, text in escaped(line).items() if name not in self._origin}))


def _renderer(stream: TextIO) -> "ConsoleRenderer":
    from structlog.dev import ConsoleRenderer  # noqa: PLC0415 - a fifth of the start, and only people need it

    return ConsoleRenderer(event_key="message", colors=stream.isatty())


class LoggerSink(LogSink):
    """For programs with a log of their own: each line goes to the logger `carillon`, with its fields."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__(sys.stderr, level="debug", redaction=Redaction(secrets))
        self._logger = logging.getLogger("carillon")

    def emit(
        self, level: int, event: str, message: str, fields: dict[str, Any], *, key: str = "", always: bool = False
    ) -> None:
        """Pass one line to the logger, which decides by its level."""
        del key, always
        if self._logger.isEnabledFor(level):
            clean = self.clean({"event": event, "message": message, **fields})
            self._logger.log(level, "%s", clean.pop("message"), extra={"carillon": clean})


def _span() -> dict[str, str]:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"otel_trace_id": f"{context.trace_id:032x}", "otel_span_id": f"{context.span_id:016x}"}


_active: LogSink | None = None
_speaker: ContextVar[dict[str, str] | None] = ContextVar("speaker", default=None)


def speak_for(service: str, blueprint: str) -> None:
    """Log lines of this task and of the tasks that it starts carry this blueprint's name."""
    _speaker.set({"service": service, "blueprint": blueprint})


def active() -> LogSink:
    """The configured sink; before that, one that writes JSON to stdout."""
    return _active or LogSink(sys.stdout)


def configured() -> LogSink | None:
    """The configured sink, if there is one."""
    return _active


def activate(sink: LogSink | None) -> None:
    """Make this sink the configured one."""
    global _active  # noqa: PLW0603 - a process has one stdout
    _active = sink
