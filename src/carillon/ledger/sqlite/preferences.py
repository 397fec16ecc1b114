"""Preferences in SQLite."""

import json
from collections.abc import Mapping, Sequence

from carillon.domain.people import Preferences, Wish
from carillon.ledger.preference_rows import in_order, wanted, wish_values
from carillon.ledger.sqlite.file import SqliteFile


class SqlitePreferences:
    """Satisfies PreferenceLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        asked = json.dumps(sorted({(tenant or "", user_id) for tenant, user_id in people}))
        rows = await self._file.read(
            lambda connection, _: connection.execute(self._sql["preferences"], (asked,)).fetchall()
        )
        return in_order(people, [dict(row) for row in rows])

    async def wish(self, tenant_id: str | None, user_id: str, wish: Wish) -> Preferences:
        values = wish_values(tenant_id, user_id, wish)
        row = await self._file.write(
            lambda connection, now: connection.execute(self._sql["wish"], (*values, now)).fetchone()
        )
        return wanted(dict(row))

    async def disable(self, tenant_id: str | None, user_id: str, channel: str) -> None:
        await self.wish(tenant_id, user_id, Wish(channels={channel: False}))
