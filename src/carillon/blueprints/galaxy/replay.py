"""How a dead letter is replayed: the same intent under a new key, as a line an operator can paste."""

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from carillon.domain.canonical import canonical

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+=-]+")
_USER = "user:"


def replay_fields(record: Mapping[str, Any], only: Collection[str] | None = None) -> dict[str, str]:
    """The fields of the new intent, from the old one's record; `only` narrows the audience to these recipient refs."""
    fields = {
        "notification_type": str(record["notification_type"]),
        "producer": str(record["producer"]),
        "audience_kind": str(record["audience_kind"]),
        # Made from the old notification, so that pasting a line twice tells nobody twice.
        "idempotency_key": f"replay:{record['notification_id']}",
        "occurred_at_ms": str(record["occurred_at"]),
        "payload_json": str(record["payload_json"]),
    }
    users: list[str] | None = record["recipient_user_ids"]
    if users is not None:
        named = users if only is None else [user for user in users if f"{_USER}{user}" in only]
        fields["recipient_user_ids_json"] = canonical(named)
    return fields


def xadd_line(stream: str, fields: Mapping[str, str]) -> str:
    """One line that a shell after `redis-cli` and the prompt of redis-cli read alike."""
    words = [_quoted_json(value) if name.endswith("_json") else _quoted(value) for name, value in fields.items()]
    pairs = (word for pair in zip(fields, words, strict=True) for word in pair)
    return " ".join(["XADD", _quoted(stream), "'*'", *pairs])


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else shlex.quote(text)


def _quoted_json(text: str) -> str:
    # The two disagree on how to write an apostrophe inside apostrophes; JSON can do without one.
    return "'" + text.replace("'", "\\u0027") + "'"
