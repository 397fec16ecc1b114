"""Writes events, library logs, warnings and crashes as one stream of log lines."""

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Final, Literal, NoReturn, TextIO

import msgspec

from carillon.domain.claims import Settled
from carillon.domain.events import BreakerChanged, Event, IntentRepeated, ReceiptTaken, RouteAttempted, event_word
from carillon.domain.outcomes import STOPPING
from carillon.domain.ports import Observer
from carillon.upkeep.logs.redaction import Redaction, traceback_text
from carillon.upkeep.logs.sink import (
    CRITICAL,
    DEBUG,
    ERROR,
    INFO,
    LEVELS,
    WARNING,
    LogSink,
    activate,
    active,
    configured,
    speak_for,
)

_LONGEST_STRAY = 12_000
__all__ = [
    "LEVELS",
    "Format",
    "LogSink",
    "active",
    "configure",
    "failed_to_start",
    "granian_logging",
    "log_observer",
    "ready",
    "speak_for",
]

Format = Literal["json", "pretty", "auto"]


class Bridge(logging.Handler):
    """Writes the standard library's log records to the sink."""

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


class PrintedText(io.TextIOBase):
    """Replaces stdout or stderr, so that printed text becomes log lines."""

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
    """Route logs of libraries and Python's warnings into the log, until the stack is unwound."""
    root = logging.getLogger()
    stack.callback(root.setLevel, root.level)
    stack.callback(setattr, root, "handlers", root.handlers)
    stack.callback(logging.captureWarnings, capture=False)
    root.handlers = [Bridge(sink)]
    root.setLevel(sink.threshold)
    logging.captureWarnings(capture=True)


def route_crashes(sink: LogSink, stack: contextlib.ExitStack) -> None:
    """Route uncaught exceptions of threads and of the process into the log, until the stack is unwound."""

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
    """Route structlog into the log if the program uses it; loading it needlessly would take a fifth of the start."""
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


def configure(
    format: Format = "auto",  # noqa: A002 - the option is called so
    level: str = "info",
    service: str = "carillon",
    blueprint: str = "local",
    stream: TextIO | None = None,
    *,
    secrets: Iterable[str] = (),
    verbose: bool = False,
) -> Callable[[], None]:
    """Route all output of this process into one stream; calling the result undoes it."""
    before = configured()
    out = stream or (before.stream if before else sys.stdout)
    pretty = format == "pretty" or (format == "auto" and out.isatty())
    sink = LogSink(
        out,
        level=level,
        service=service,
        blueprint=blueprint,
        pretty=pretty,
        verbose=verbose,
        redaction=Redaction(secrets),
    )
    with contextlib.ExitStack() as stack:
        route_crashes(sink, stack)
        route_logging(sink, stack)
        if not pretty:
            stack.enter_context(contextlib.redirect_stdout(PrintedText(sink, "stdout")))
            stack.enter_context(contextlib.redirect_stderr(PrintedText(sink, "stderr")))
        route_structlog(sink, stack)
        stack.callback(activate, before)
        activate(sink)
        return stack.pop_all().close


def ready(addresses: Sequence[str], welcome: Sequence[str] = (), **hints: str) -> None:
    """Log that the process is ready, at every log level, because tests and operators wait for this line."""
    active().ready(addresses, hints, welcome)


def failed_to_start(reason: str) -> None:
    """Log why the process ends before it was ready, at every log level."""
    active().emit(ERROR, "start_failed", reason, {}, always=True)


def granian_logging() -> dict[str, Any]:
    """The `log_dictconfig` with which granian leaves its lines to the root logger."""
    return {"handlers": {}, "loggers": {"_granian": {"propagate": True}, "granian.access": {"propagate": True}}}


# By the verdict or the outcome if an event has one, else by the event's name.
_SAID: Final[dict[str, tuple[int, str]]] = {
    "intent_accepted": (INFO, "Accepted {notification_type} from {producer}, routes: {routes}"),
    "duplicate": (INFO, "{notification_type} from {producer} came again and had been accepted before"),
    "conflict": (WARNING, "{notification_type} from {producer} reuses an idempotency key for other content"),
    "finish": (INFO, "Sent {channel} through {provider} on attempt {attempt}"),
    "failover": (INFO, "Failover succeeded: sent {channel} through {provider} on attempt {attempt}"),
    "retry": (WARNING, "{provider} failed {channel} on attempt {attempt}: {error}; again in {delay_seconds} s"),
    "defer": (WARNING, "{provider} asks {channel} to wait: {error}; again in {delay_seconds} s, no attempt spent"),
    STOPPING: (
        INFO,
        "This process stops; {channel} waits for another, again in {delay_seconds} s, no attempt spent",
    ),
    "fail_over": (WARNING, "{provider} failed {channel} on attempt {attempt}: {error}; {next_provider} is next"),
    "bury": (ERROR, "Gave up on {channel} through {provider} on attempt {attempt}: {error}"),
    "skip": (INFO, "Skipped {channel}: {error}"),
    "notification_stopped": (INFO, "Nothing more of {notification_id} is sent: {reason}"),
    "route_suppressed": (WARNING, "Skipped {channel} of {notification_type}: the address is suppressed, {kind}"),
    "route_gated": (INFO, "Skipped {channel} of {notification_type} at the gate {gate}: {because}"),
    "address_suppressed": (WARNING, "{provider} says that an address of {channel} is dead: suppressed, {kind}"),
    "intent_malformed": (WARNING, "Kept {stream_entry_id} as malformed, {failure_code}: {failure_message}"),
    "person_sought": (DEBUG, "Asked the directory about a person: {result}"),
    "door_stopped": (ERROR, "{door} stopped before {stream_entry_id}: {reason}; again in {retry_in_seconds} s"),
    "stream_trimmed": (ERROR, "{stream} was trimmed past the offset {offset}: unread entries are lost"),
    "part_started": (INFO, "{part} started"),
    "part_stopped": (INFO, "{part} stopped"),
    "request_served": (INFO, "{method} {path} answered {status}"),
    "token_refused": (WARNING, "Refused {method} {path} from {address}: the token or key is {reason}"),
    "lease_lost": (WARNING, "A lease for {provider} was lost to another worker"),
    "leases_reset": (WARNING, "reset expired leases"),
    "breaker_changed": (WARNING, "The breaker of {provider} went from {before} to {after}"),
    "endpoint_breaker_changed": (WARNING, "The breaker of {endpoint} ({provider}) went from {before} to {after}"),
    "endpoint_disabled": (
        ERROR,
        "{endpoint} ({provider}) has failed for {failing_seconds} s and is disabled: its routes become dead letters",
    ),
    "endpoint_enabled": (WARNING, "{endpoint} ({provider}) is enabled again, by {by}"),
    "calls_paused": (WARNING, "{what} is paused by {by}: {reason}"),
    "calls_resumed": (WARNING, "{what} is not paused any more"),
    "target_slowed": (
        WARNING,
        "{provider} asks us to slow down: no call for {pause_seconds} s, then {per_second} a second",
    ),
    "trouble": (WARNING, "{where} failed and will try again: {error}"),
    "provider_probed": (INFO, "{provider} was asked for its health while its breaker is open"),
    "rehomed": (WARNING, "{routes} waiting {channel} routes lost their provider or lane and go to {provider}"),
    "tickets_lost": (ERROR, "{routes} waiting routes stood in no queue, and no worker would have found them: put back"),
    "receipt_failed_over": (
        WARNING,
        "{provider} delivery failed for {provider_message_id}. Auto-retrying with secondary provider",
    ),
    "receipt_retried": (
        WARNING,
        "{provider} delivery failed for {provider_message_id}. Auto-retrying with the same provider",
    ),
    "receipt_buried": (ERROR, "Gave up after {provider} reported {kind} for {provider_message_id}"),
    "receipt_noted": (INFO, "{provider} reported {kind} for {provider_message_id}"),
    "receipt_ignored": (INFO, "{provider} reported {kind} for {provider_message_id}, which changes nothing"),
    "receipt_waiting": (INFO, "{provider} reported {kind} for {provider_message_id}, which is not known here yet"),
    "receipt_repeated": (DEBUG, "{provider} reported {kind} for {provider_message_id} again"),
    "callback_refused": (WARNING, "A callback of {vendor} was refused: {reason}"),
    "alert_told": (INFO, "{sink} confirmed the alert that {channel} of {notification_id} was given up"),
    "alert_delayed": (WARNING, "{sink} did not confirm alert {alert_id}: {error}; again in {retry_in_seconds} s"),
    "message_finished": (INFO, "{template_code} for {user_id} has ended: {status}"),
    "history_kept": (DEBUG, "Copied {endings} ended routes, the newest {behind_seconds} s old"),
    "queue_pumped": (DEBUG, "{moved} messages of {queue} are due again"),
    "queue_looked": (DEBUG, "{queue} has {main} waiting, {processing} processing, {delayed} delayed, {failed} failed"),
    "queue_deep": (WARNING, "{depth} messages wait in {queue}, more than {limit}"),
    "message_swept": (WARNING, "The worker of {message_id} of {queue} died: {verdict} after {attempts} attempts"),
    "message_overdue": (WARNING, "A worker has held {message_id} of {queue} for {seconds} s"),
    "failed_trimmed": (WARNING, "Deleted {messages} old failed messages of {queue}"),
    "webhook_called": (DEBUG, "Called the webhook for {event_id}: {status}"),
    "pruned": (INFO, "Removed {records} records, {malformed_intents} malformed intents and {audit_rows} audit rows"),
}
# Events that repeat are rate-limited; lines with the same value of this field count as repeats.
_REPEATING: Final = {
    "lease_lost": "provider",
    "breaker_changed": "provider",
    "target_slowed": "provider",
    "trouble": "where",
    "callback_refused": "vendor",
    "alert_delayed": "sink",
    "token_refused": "reason",
}
_ROUNDED: Final = frozenset(
    {
        "behind_seconds",
        "duration_ms",
        "delay_seconds",
        "failing_seconds",
        "pause_seconds",
        "per_second",
        "retry_in_seconds",
        "seconds",
    }
)
_STALE: Final = "; it changed nothing, the lease was lost before"


def log_observer(
    sink: LogSink | None = None, sentences: Mapping[str, str] = MappingProxyType({}), *, name_people: bool = False
) -> Observer:
    """Log each event; an event below the level is not formatted.

    A blueprint may have its own sentences, and may log the recipient of each attempt.
    """
    out = sink or active()
    said = _SAID | {word: (_SAID.get(word, (INFO, ""))[0], sentence) for word, sentence in sentences.items()}

    def observe(event: Event) -> None:
        if isinstance(event, RouteAttempted):
            word = "failover" if event.verdict == "finish" and event.failed_over else event.verdict
            # A call that the shutdown cancelled says nothing about the provider: a clean end logs no warning.
            word = STOPPING if event.classification == STOPPING else word
        elif isinstance(event, ReceiptTaken):
            word = f"receipt_{event.effect}"
        elif isinstance(event, BreakerChanged) and event.endpoint is not None:
            word = "endpoint_breaker_changed"
        else:
            word = event.outcome if isinstance(event, IntentRepeated) else event_word(event)
        level, sentence = said.get(word, (INFO, word))
        if level >= out.threshold:
            fields = msgspec.to_builtins(event)
            if isinstance(event, RouteAttempted) and not name_people:
                del fields["user_id"]
            _say(out, level, sentence, fields)

    return observe


def _say(out: LogSink, level: int, sentence: str, fields: dict[str, Any]) -> None:
    word = fields.pop("type")
    for name in _ROUNDED & fields.keys():
        fields[name] = fields[name] and round(fields[name], 3)
    try:
        message = sentence.format_map(fields)
    except (KeyError, ValueError, IndexError, AttributeError):
        # A blueprint's own sentence may name a field that this event does not have; write the line nevertheless.
        message = sentence
    if fields.get("settled") == Settled.STALE:
        message += _STALE
    # Each attempt and intent is about one message, so these lines are never rate-limited.
    key = f"{word}/{level}/{fields[_REPEATING[word]]}{fields.get('endpoint') or ''}" if word in _REPEATING else ""
    out.emit(level, word, message, fields | {"failed_over": fields.get("failed_over") or None}, key=key)
