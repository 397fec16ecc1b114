"""`make bench`: every part, or the ones that ONLY names; AGAINST=commit measures that commit beside it."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import (
    accept,
    backlog,
    bombs,
    console,
    drain,
    extras,
    files,
    galaxy,
    latency,
    listo,
    lists,
    needs,
    neighbours,
    outgoing,
    picture,
    push,
    queues,
    render,
    returning,
    shape,
    sse,
    strangers,
    timing,
    vendors,
    web,
    weights,
)
from bench.beside import beside
from bench.measure import Outcome
from tests.support.servers import Postgres

PARTS: dict[str, Callable[[Postgres, Callable[[str], None]], Outcome]] = {
    "accept": accept.measure,
    "render": render.measure,
    "bombs": bombs.measure,
    "drain": drain.measure,
    "http": outgoing.measure,
    "vendors": vendors.measure,
    "backlog": backlog.measure,
    "shape": shape.measure,
    "files": files.measure,
    "latency": latency.measure,
    "galaxy": galaxy.measure,
    "listo": listo.measure,
    "push": push.measure,
    "queues": queues.measure,
    "lists": lists.measure,
    "sse": sse.measure,
    "returning": returning.measure,
    "web": web.measure,
    "console": console.measure,
    "strangers": strangers.measure,
    "neighbours": neighbours.measure,
    "timing": timing.measure,
    "extras": extras.measure,
    "weights": weights.measure,
}
SERVERS = {"timing": {"shared_buffers": "1GB"}}
"""What a part needs of its server beyond the rest: a million people do not fit into 256 MB, in no installation."""
RESULTS = Path(".bench/results.json")
PICTURE = Path("docs/explanation/drain.svg")


def main(chosen: list[str]) -> int:
    """Measure, print every figure, then one line for each target."""
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        sys.stderr.write(f"no part {unknown[0]}; there are {', '.join(PARTS)}\n")
        return 2
    needs.ensure()
    total = Outcome()
    console = Console()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        parts = chosen or list(PARTS)
        bar = progress.add_task("starting", total=len(parts))
        for name in parts:
            # A server of its own for each part: what one leaves behind must not slow the next.
            server = {"shared_buffers": "256MB", "max_connections": "200"} | SERVERS.get(name, {})
            with Postgres(durable=True, settings=server) as postgres:
                total.add(PARTS[name](postgres, lambda text: progress.update(bar, description=text)))
            progress.advance(bar)
    _write(total)
    for figure in total.figures:
        console.print(figure.line(), markup=False, highlight=False)
    for name, words in total.settings.items():
        console.print(f"{name}: {words}", markup=False, highlight=False, soft_wrap=True)
    for ratio in total.ratios:
        print(ratio.line())
    return 0


def _write(total: Outcome) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.platform(), "carillon": version("carillon")}
    found = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine, **msgspec.to_builtins(total)}
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    drained = [figure for figure in total.figures if figure.part == "drain"]
    if len(drained) > 2:  # noqa: PLR2004 - a picture of one bar compares nothing
        PICTURE.write_text(picture.bars("Draining a backlog of no-op jobs, one process, jobs per second", drained))


if __name__ == "__main__":
    against = os.environ.get("BENCH_AGAINST")
    sys.exit(beside(against, sys.argv[1:]) if against else main(sys.argv[1:]))
