"""Reading a queued message: what can never be carried out is said so at once."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Protocol

from carillon.blueprints.billing.domain import DECIMALS, money
from carillon.domain.jobs import Permanent

_LONGEST = 255


class Job(Protocol):
    """What a registered handler is given."""

    @property
    def id(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def payload(self) -> dict[str, Any]: ...
    @property
    def idempotency_key(self) -> str | None: ...


def text_in(payload: Mapping[str, Any], name: str) -> str:
    """A name or an id, also where somebody wrote it as a number."""
    found = payload.get(name)
    text = str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
    if not 0 < len(text) <= _LONGEST or "\x00" in text:
        raise Permanent(f"the payload must name {name}, in at most {_LONGEST} characters")
    return text


def amount_in(payload: Mapping[str, Any], name: str) -> Decimal | None:
    """An amount of money; None where none is named."""
    found = payload.get(name)
    if found is None:
        return None
    amount = money(found) if isinstance(found, int | float | str) and not isinstance(found, bool) else None
    if amount is None:
        raise Permanent(f"{name}: {str(found)[:40]} is no amount of at most {DECIMALS} decimals")
    return amount


def whole_in(payload: Mapping[str, Any], name: str) -> int:
    """A whole number that fits every store."""
    found = payload.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) >= 10**15:
        raise Permanent(f"{name}: {str(found)[:40]} is no whole number")
    return found
