"""What we decide to do with a route after an attempt."""

import msgspec


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """The person has been told."""


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """Try the same provider again after `delay` seconds; the attempt stays counted."""

    delay: float


class Defer(msgspec.Struct, frozen=True, tag="defer"):
    """Come back after `delay` seconds without having spent an attempt."""

    delay: float


class FailOver(msgspec.Struct, frozen=True, tag="fail_over"):
    """Let another provider try after `delay` seconds; the attempt stays counted."""

    provider: str
    delay: float = 0.0


class Bury(msgspec.Struct, frozen=True, tag="bury"):
    """Give up: the route becomes a dead letter that an operator can see and redrive."""

    classification: str
    reason: str


FINISH = Finish()
"""It carries nothing, so one serves all."""

Verdict = Finish | Retry | Defer | FailOver | Bury


def verdict_word(verdict: Verdict) -> str:
    """The word for a verdict in tables, metrics and logs."""
    return str(type(verdict).__struct_config__.tag)
