"""Who was told what, for auditors: one row per message that came to its end."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `audit_logs`; copies of one message share the `audit_key` and write one row."""

    audit_key: str
    trace_id: str
    user_id: str
    notification_type: str
    template_id: str
    status: str
    metadata_json: str


class AuditLedger(Protocol):
    """Where audit rows are kept."""

    async def write_audit(self, rows: Sequence[AuditRow]) -> None:
        """Write each row whose key is not there yet, in one commit; raises LedgerUnavailable."""
        ...
