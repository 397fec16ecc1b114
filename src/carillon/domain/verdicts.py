"""Verdicts: the engine's decision about a route after an attempt."""

import msgspec


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """The provider accepted the message: the route is done."""


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """Try the same provider again after `delay` seconds; the attempt counts."""

    delay: float


class Defer(msgspec.Struct, frozen=True, tag="defer"):
    """Wait `delay` seconds; the attempt does not count."""

    delay: float


class FailOver(msgspec.Struct, frozen=True, tag="fail_over"):
    """Try another provider after `delay` seconds; the attempt counts."""

    provider: str
    delay: float = 0.0


class Bury(msgspec.Struct, frozen=True, tag="bury"):
    """Give up: the route becomes a dead letter that an operator can see and redrive."""

    classification: str
    reason: str


class Skip(msgspec.Struct, frozen=True, tag="skip"):
    """Send nothing, by a rule that holds by now: the route ends as skipped, and the attempt does not count."""

    gate: str
    reason: str


FINISH = Finish()
"""One shared instance, because the verdict has no fields."""

Verdict = Finish | Retry | Defer | FailOver | Bury | Skip


def verdict_word(verdict: Verdict) -> str:
    """The word for a verdict in tables, metrics and logs."""
    return str(type(verdict).__struct_config__.tag)
