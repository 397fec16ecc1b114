"""Which columns are sealed, and how a row is brought under the first key: the same for every engine."""

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from carillon.ledger.seals import Seals

Again: TypeAlias = Callable[[str | None, str | None], tuple[str | None, str | None]]
"""The first and the second sealed column of a row, sealed anew."""

TABLES = ("suppressions", "receipts", "routes", "records", "preferences")
"""In this order: whoever asked for silence is found again before anything else."""


def again(seals: Seals, table: str) -> Again:
    """How rows of this table are sealed anew; a table with one sealed column has no second."""

    def address(text: str | None) -> str | None:
        return seals.address(seals.open(text))

    def content(text: str | None) -> str | None:
        return seals.content(seals.open(text))

    def contacts(text: str | None) -> str | None:
        known: Mapping[str, str] = json.loads(text or "{}")
        return json.dumps({kind: content(value) for kind, value in known.items()})

    first = {"records": content, "preferences": contacts}.get(table, address)
    return lambda one, two: (first(one), content(two))
