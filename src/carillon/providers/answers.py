"""The meaning of a vendor's answers: a table of rules, in which an operator can override single rules."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, assert_never

import msgspec

from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown

MAX_TEXT = 300
_CLASS = re.compile(r"[1-5]xx")
_LOOKS_LIKE_A_STATUS = re.compile(r"[0-9xX*]{3}")
_STATUS = re.compile(r"[1-5][0-9]{2}")
_TIMEOUT, _TOO_MANY, _FIRST_REFUSAL, _LAST_REFUSAL = 408, 429, 400, 499

Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}$")]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the table."""

    outcome: Literal["sent", "throttled", "unavailable", "refused", "unknown"]
    classification: Word
    recipient_gone: bool = False
    """The address is dead; only a refusal can say so."""
    wait_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=86400.0)] | None = None
    """How long to wait when the vendor throttles without a Retry-After."""
    one_recipient: bool = False
    """The vendor throttles messages to this recipient only: calls for others do not slow down."""

    def __post_init__(self) -> None:
        if self.recipient_gone and self.outcome != "refused":
            raise ValueError("only a refused message can have a recipient that is gone")
        if self.one_recipient and self.outcome != "throttled":
            raise ValueError("only a throttled message can be about one recipient")


class AnswerTable:
    """The rules of the vendor, overridden by those of the operator."""

    def __init__(self, vendor: Mapping[str, Rule], overrides: Mapping[str, Rule] | None = None) -> None:
        overrides = overrides or {}
        for key in overrides:
            _check_key(key)
        self._rules = {**vendor, **overrides}

    def judge(self, codes: Sequence[str], status: int, text: str, retry_after: float | None) -> Outcome:
        """The outcome of a failure: by the vendor's codes in their order, then the status, then the class of it."""
        for key in (*codes, str(status), f"{status // 100}xx", "*"):
            rule = self._rules.get(key)
            if rule is not None:
                return _outcome(rule, brief(text), retry_after)
        return _outcome(_by_http(status), brief(text), retry_after)


def brief(text: str, *hidden: str | None) -> str:
    """A vendor's text as one short printable line, with the hidden words masked."""
    for word in hidden:
        if word:
            text = text.replace(word, "***")
    # Cut first: the text may be long.
    text = text[: 4 * MAX_TEXT]
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_TEXT]


def _outcome(rule: Rule, error: str, retry_after: float | None) -> Outcome:
    wait = rule.wait_seconds if retry_after is None else retry_after
    match rule.outcome:
        case "sent":
            return Sent()
        case "throttled":
            if rule.one_recipient:
                return Throttled(error, retry_after=wait, classification=rule.classification)
            return Throttled(error, retry_after=wait)
        case "unavailable":
            return Unavailable(error, classification=rule.classification, retry_after=wait)
        case "refused":
            return Refused(error, classification=rule.classification, recipient_gone=rule.recipient_gone)
        case "unknown":
            return Unknown(error, classification=rule.classification)
        case _:
            assert_never(rule.outcome)


def _by_http(status: int) -> Rule:
    """The rule for a status that the table does not have."""
    word = f"http_{status}"
    if status == _TOO_MANY:
        return Rule("throttled", word)
    if status == _TIMEOUT:
        return Rule("unknown", word)
    if _FIRST_REFUSAL <= status <= _LAST_REFUSAL:
        return Rule("refused", word)
    return Rule("unavailable", word)


def _check_key(key: str) -> None:
    # A key that can never match is a mistake: refuse it at the start.
    if not key or key != key.strip():
        raise ValueError(f"answers: {key[:100]!r} is not a code, a status, a class such as '5xx', or '*'")
    if _LOOKS_LIKE_A_STATUS.fullmatch(key) and not _CLASS.fullmatch(key) and not _STATUS.fullmatch(key):
        raise ValueError(f"answers: {key!r} is neither a status such as '429' nor a class such as '5xx'")
