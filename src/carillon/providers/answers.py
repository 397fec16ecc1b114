"""What a vendor's answers mean: a table in data, in which operators overrule single lines."""

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
    """How long to wait where the vendor asks for patience without saying how much."""

    def __post_init__(self) -> None:
        if self.recipient_gone and self.outcome != "refused":
            raise ValueError("only a refused message can have a recipient that is gone")


class AnswerTable:
    """The vendor's own lines, and the operator's over them."""

    def __init__(self, vendor: Mapping[str, Rule], overrides: Mapping[str, Rule] | None = None) -> None:
        overrides = overrides or {}
        for key in overrides:
            _check_key(key)
        self._rules = {**vendor, **overrides}

    def judge(self, codes: Sequence[str], status: int, text: str, retry_after: float | None) -> Outcome:
        """What a failure means: by the vendor's codes in their order, then its status, then the status' class."""
        for key in (*codes, str(status), f"{status // 100}xx", "*"):
            rule = self._rules.get(key)
            if rule is not None:
                return _outcome(rule, brief(text), retry_after)
        return _outcome(_by_http(status), brief(text), retry_after)


def brief(text: str, *hidden: str | None) -> str:
    """A vendor's words as one short printable line, without what must not be written down."""
    for word in hidden:
        if word:
            text = text.replace(word, "***")
    # Cut first: a vendor may say a lot.
    text = text[: 4 * MAX_TEXT]
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_TEXT]


def _outcome(rule: Rule, error: str, retry_after: float | None) -> Outcome:
    wait = rule.wait_seconds if retry_after is None else retry_after
    match rule.outcome:
        case "sent":
            return Sent()
        case "throttled":
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
    """What HTTP itself says about an answer nobody wrote a line for."""
    word = f"http_{status}"
    if status == _TOO_MANY:
        return Rule("throttled", word)
    if status == _TIMEOUT:
        return Rule("unknown", word)
    if _FIRST_REFUSAL <= status <= _LAST_REFUSAL:
        return Rule("refused", word)
    return Rule("unavailable", word)


def _check_key(key: str) -> None:
    # A line that can never be found would be a rule its author believes in.
    if not key or key != key.strip():
        raise ValueError(f"answers: {key[:100]!r} is not a code, a status, a class such as '5xx', or '*'")
    if _LOOKS_LIKE_A_STATUS.fullmatch(key) and not _CLASS.fullmatch(key) and not _STATUS.fullmatch(key):
        raise ValueError(f"answers: {key!r} is neither a status such as '429' nor a class such as '5xx'")
