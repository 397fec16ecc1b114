"""What a program hears that brought no observer of its own: the standard library's logging."""

import logging

import msgspec

from carillon.domain.events import Event, LeaseLost, RouteAttempted, Trouble, event_word
from carillon.domain.ports import Observer
from carillon.domain.queue_events import FailedTrimmed, MessageOverdue, MessageSwept, QueueDeep

_WORTH_A_WARNING = Trouble | LeaseLost | QueueDeep | MessageSwept | MessageOverdue | FailedTrimmed


def told_by_logging(name: str = "carillon.queues") -> Observer:
    """Failures as warnings, everything else at debug level."""
    logger = logging.getLogger(name)

    def observe(event: Event) -> None:
        failed = isinstance(event, RouteAttempted) and event.verdict != "finish"
        level = logging.WARNING if failed or isinstance(event, _WORTH_A_WARNING) else logging.DEBUG
        if logger.isEnabledFor(level):
            logger.log(level, "%s", _sentence(event))

    return observe


def _sentence(event: Event) -> str:
    if not isinstance(event, RouteAttempted):
        said = {name: value for name, value in msgspec.to_builtins(event).items() if name != "type"}
        return f"{event_word(event)}: " + ", ".join(f"{name}={value}" for name, value in said.items())
    what = f"{event.channel} {event.notification_type} {event.notification_id}, run {event.attempt}"
    if event.verdict == "finish":
        return f"{what}: done in {event.duration_ms:.1f} ms"
    after = "given up" if event.delay_seconds is None else f"again in {event.delay_seconds:.1f} s"
    return f"{what}: {event.error}; {after}"
