"""What others say, led into the log: libraries, warnings, prints, crashes."""

import contextlib
import io
import logging
import sys
import threading
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, NoReturn

from carillon.upkeep.logs.redaction import traceback_text
from carillon.upkeep.logs.sink import CRITICAL, DEBUG, ERROR, LEVELS, WARNING, LogSink, active

_LONGEST_STRAY = 12_000


class Bridge(logging.Handler):
    """Carries the standard library's log records into the sink."""

    def __init__(self, sink: LogSink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's bad format string is still worth a line
            message = str(record.msg)
        level = max(DEBUG, min(CRITICAL, record.levelno // 10 * 10))
        error = record.exc_info[1] if record.exc_info else None
        event = "warning" if record.name == "py.warnings" else "log"
        key = f"{record.name}/{level}/{record.msg!s:.100}" if level >= WARNING else ""
        self._sink.emit(level, event, message, {"logger": record.name, "exception": traceback_text(error)}, key=key)


class Stray(io.TextIOBase):
    """Stands in for stdout or stderr, so that what is printed past the log becomes lines of it."""

    def __init__(self, sink: LogSink, name: str) -> None:
        super().__init__()
        self._sink, self._name, self._rest = sink, name, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > _LONGEST_STRAY:
            lines, self._rest = [*lines, self._rest], ""
        for line in filter(str.strip, lines):
            self._sink.emit(WARNING, "stray_output", line, {"stream": self._name}, key=f"stray/{self._name}")
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._sink.stream.fileno()


def route_logging(sink: LogSink, stack: contextlib.ExitStack) -> None:
    """What libraries log, and Python's warnings, until the stack is unwound."""
    root = logging.getLogger()
    stack.callback(root.setLevel, root.level)
    stack.callback(setattr, root, "handlers", root.handlers)
    stack.callback(logging.captureWarnings, capture=False)
    root.handlers = [Bridge(sink)]
    root.setLevel(sink.threshold)
    logging.captureWarnings(capture=True)


def route_crashes(sink: LogSink, stack: contextlib.ExitStack) -> None:
    """What ends a thread or the process without being caught, until the stack is unwound."""

    def crashed(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        fields = {"exception": traceback_text(error)}
        sink.emit(CRITICAL, "uncaught_exception", f"{type(error).__name__}: {error}", fields, always=True)

    def thread_crashed(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, SystemExit):
            crashed(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)

    def unraisable(args: "sys.UnraisableHookArgs") -> None:
        message = f"{args.err_msg or 'Exception ignored'}: {args.exc_value!r}"
        sink.emit(ERROR, "unraisable", message, {"exception": traceback_text(args.exc_value)}, key="unraisable")

    for owner, name, hook in (
        (sys, "excepthook", crashed),
        (sys, "unraisablehook", unraisable),
        (threading, "excepthook", thread_crashed),
    ):
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, hook)


def route_structlog(sink: LogSink, stack: contextlib.ExitStack) -> None:
    """What others say through structlog, where anybody uses it; loading it for nobody would be a fifth of the start."""
    if "structlog" not in sys.modules:
        return
    import structlog  # noqa: PLC0415 - it is there already

    def tell(_logger: object, method: str, line: MutableMapping[str, Any]) -> NoReturn:
        event, level = str(line.pop("event", method)), LEVELS.get(method, ERROR)
        failed = line.pop("exc_info", None) or (method == "exception")
        error = failed if isinstance(failed, BaseException) else sys.exc_info()[1] if failed else None
        fields = {**line, "exception": traceback_text(error)}
        key = f"{event}/{level}" if level >= WARNING else ""
        active().emit(level, event, str(fields.pop("message", event)), fields, key=key)
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, tell],
        wrapper_class=structlog.make_filtering_bound_logger(sink.threshold),
    )
    stack.callback(structlog.reset_defaults)
