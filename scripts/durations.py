"""Writes tests/durations.json from the last run's figures: `make durations` after a whole `make test`.

The table is for a checkout in which the tests never ran: its first run starts the longest files first, too. The table
changes seldom: a file's figure stays until the file takes twice or half as long, and short files are left out.
"""

import json
import sys
from collections.abc import Mapping

from tests.support.order import CACHE, HOUSE, SHIPPED

LEAST_SECONDS = 0.2
"""A mean of one test below this says nothing that the folder's usual figure does not say."""
CHANGED = 2.0


def table(known: Mapping[str, float], shipped: Mapping[str, float]) -> dict[str, float]:
    """The new table: seconds of one test, by file."""
    found: dict[str, float] = {}
    for file, seconds in sorted(known.items()):
        before = shipped.get(file)
        if before is not None and before / CHANGED <= seconds <= before * CHANGED:
            found[file] = before
        elif seconds >= LEAST_SECONDS:
            found[file] = round(seconds, 1)
    return found


def main() -> int:
    """Replace the table; without a run to take figures from, say so."""
    if not CACHE.exists():
        print("no figures yet; run make test first", file=sys.stderr)
        return 1
    root = SHIPPED.parent.parent
    known = {
        file: seconds
        for file, seconds in json.loads(CACHE.read_text()).items()
        if file == HOUSE or (root / file).is_file()
    }
    before = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {}
    SHIPPED.write_text(json.dumps(table(known, before), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
