"""Rows of tickets as tickets."""

from collections.abc import Iterable
from typing import Any

from carillon.domain.live import Ticket


def ticket_of(row: Iterable[Any]) -> Ticket:
    user_id, tenant_id, token_until_ms, token_id = row
    return Ticket(user_id=user_id, tenant_id=tenant_id, expires_at_ms=token_until_ms, token_id=token_id)
