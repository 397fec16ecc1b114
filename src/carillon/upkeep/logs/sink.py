"""The sink that completes, redacts and writes every log line."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TextIO

from opentelemetry import trace

from carillon.upkeep.logs.redaction import Redaction, Throttle, encode, escaped

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50}
DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50
_WORDS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}
# A dim line is one that nobody needs to read; `warn` and `crit` keep the column at five characters.
_SHORT: Final = {"warning": "warn", "critical": "crit"}
_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_BESIDE: Final = frozenset({"timestamp", "level", "event", "message", "exception"})


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
        verbose: bool = False,
        redaction: Redaction | None = None,
    ) -> None:
        """`pretty` writes for people: one line an event; `verbose` adds its fields and whole tracebacks."""
        self.stream = stream
        self.threshold = LEVELS[level.lower()]
        self._origin = {"service": service, "blueprint": blueprint}
        self._redaction = redaction or Redaction()
        self._throttle = Throttle()
        self._pretty, self._verbose = pretty, verbose
        self._coloured = pretty and stream.isatty()
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
            self.write(self._readable(clean) if self._pretty else encode(clean))
        except Exception as error:  # noqa: BLE001 - an observer must not raise, whatever it was handed
            self.write(encode(self.header(ERROR, "unloggable", f"A log line was lost: {type(error).__name__}")))

    def ready(self, addresses: Sequence[str], hints: Mapping[str, str], welcome: Sequence[str] = ()) -> None:
        """Write where the process listens and what to try, at every level: people paste it, so it is whole.

        On a terminal `welcome` is written instead of the hints, if it is given.
        """
        where = ", ".join(addresses) or "no address"
        shown = {name: self._redaction.without_secrets(hint) for name, hint in hints.items()}
        if not self._pretty:
            line = self.header(INFO, "ready", f"Ready on {where}")
            self.write(encode(line | {"addresses": list(addresses), **shown}))
            return
        lines = [self._redaction.without_secrets(line) for line in welcome]
        lines = lines or [f"Carillon is ready on {where}", *(f"  {name:7} {hint}" for name, hint in shown.items())]
        self.write("\n".join(["", self._styled("1", lines[0]), *lines[1:], ""]))

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

    def _readable(self, line: dict[str, Any]) -> str:
        """One line: the time, the level in its colour, and the sentence; the rest of it on request."""
        trace = str(line.get("exception") or "").strip()
        shown = escaped({name: value for name, value in line.items() if name != "exception"})
        word = str(line["level"])
        mark = self._styled(_COLOURS.get(word, ""), f"{_SHORT.get(word, word):5}")
        said = shown["message"] if word != "debug" else self._styled("2", str(shown["message"]))
        text = f"{self._styled('2', str(line['timestamp'])[11:19])}  {mark}  {said}"
        if not self._verbose:
            # The last line of a traceback names the error.
            return text + (f"  ({escaped({'': trace.splitlines()[-1]})['']})" if trace else "")
        rest = {name: value for name, value in shown.items() if name not in _BESIDE | self._origin.keys()}
        fields = " ".join(f"{name}={value}" for name, value in {"event": shown["event"], **rest}.items())
        return "\n".join([f"{text}  {self._styled('2', fields)}", *(f"    {each}" for each in trace.splitlines())])

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured and code else text


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
