"""Writes docs/explanation/one-notification.md from traces of running programs: `python -m scripts.trace_walk`."""

import ast
import re
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from tests.support import walks
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.sources import ROOT
from tests.support.tracing import Passed

PAGE = ROOT / "docs" / "explanation" / "one-notification.md"
TIMES = 4
STEP = re.compile(r"^\d+\. \[(?P<file>[\w./]+)\]\(\S+\): `(?P<name>[\w.]+)`", re.MULTILINE)
BESIDE = re.compile(r"^Also passed, at varying places: (?P<rooms>.+)$", re.MULTILINE)
_HEAD = """# One notification

What happens between a request and its last effect, in the order in which the program runs its files. `make walk`
writes this page: it runs three programs, sends one message through each, records every function of Carillon that
runs, and lists each file with its first public function. It leaves out functions that an idle program runs too. A test
repeats the traces, and fails if a step no longer runs, if the order differs, or if the program runs a room that the
page does not name.

Rooms meet only in `domain`; `compose` hands each room the parts that it needs. The words are those of the
[glossary](../reference/glossary.md).
"""
_HTTP = """The listo blueprint on PostgreSQL: `POST /api/v1/notifications/send` asks for a text message, Twilio takes
it, and Twilio's callback says that it arrived. The 202 leaves as soon as the notification is written down; the delivery
goes on beside it."""
_PUSH = """The push-worker blueprint: a message waits in `push.queue`, the template service gives its text, and FCM
takes the push. The broker hears the acknowledgement only after the result is written down."""
_BILLING = """The billing blueprint with the role `payment`: a request charges a card, the result waits in a Redis
list, and a worker tells the subscription service."""
WAYS = {
    "http": ("Over HTTP, until the vendor's receipt", _HTTP),
    "push-worker": ("From RabbitMQ to FCM", _PUSH),
    "billing": ("One payment", _BILLING),
}
"""The title and the story of each section."""


def room(file: str) -> str:
    """The first part of a path below src/carillon."""
    return file.partition("/")[0].removesuffix(".py")


def way(runs: Sequence[Passed], idle: Passed) -> Passed:
    """One function for each file, in the order that all runs agree on; an idle program passes none of them."""
    background = set(idle)
    agreed = [step for step in runs[0] if step not in background]
    for run in runs[1:]:
        agreed = _common(agreed, run)
    public = [step for step in agreed if not step[1].rpartition(".")[2].startswith("_")]
    chosen: dict[str, tuple[str, str]] = {}
    for step in [*public, *agreed]:
        chosen.setdefault(step[0], step)
    return [step for step in agreed if chosen[step[0]] == step]


def _common(one: Passed, other: Passed) -> Passed:
    """The longest sequence of steps that both pass in the same order."""
    places = {step: at for at, step in enumerate(other)}
    kept = [step for step in one if step in places]
    # For each step, the longest increasing sequence of places that ends there; the lists are short.
    best: list[tuple[int, int]] = []
    for at, step in enumerate(kept):
        before = [(best[i][0], i) for i in range(at) if places[kept[i]] < places[step]]
        length, last = max(before, default=(0, -1))
        best.append((length + 1, last))
    at = max(range(len(best)), key=lambda i: best[i][0], default=-1)
    found: Passed = []
    while at >= 0:
        found.append(kept[at])
        at = best[at][1]
    return found[::-1]


def problems(text: str, title: str, runs: Sequence[Passed]) -> list[str]:
    """Why a section of the page does not describe these runs; empty when one of the runs is as the page says."""
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    cited = [(found["file"], found["name"]) for found in STEP.finditer(section)]
    beside = BESIDE.search(section)
    named = {room(file) for file, _ in cited} | set(re.findall(r"`(\w+)`", beside["rooms"] if beside else ""))
    found = [] if cited else [f"no section {title!r} with steps"]
    missing = {room(file) for run in runs for file, _ in run} - named
    found += [f"the page does not name the room {name}" for name in sorted(missing)]
    disorders = [_disorder(cited, run) for run in runs]
    return found + (min(disorders, key=len, default=[]) if all(disorders) else [])


def _disorder(cited: Passed, run: Passed) -> list[str]:
    places = {step: at for at, step in enumerate(run)}
    found = [f"{file}: {name} was not passed" for file, name in cited if (file, name) not in places]
    passed = [step for step in cited if step in places]
    for before, after in pairwise(passed):
        if places[before] > places[after]:
            found.append(f"{after[0]}: {after[1]} was passed before {before[0]}: {before[1]}")
    return found


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / "src" / "carillon" / file).read_text())


def docstring(file: str, name: str) -> str:
    """The first line of a function's docstring; empty if it has none."""
    body: Iterable[ast.stmt] = _tree(file).body
    found: ast.AST | None = None
    for part in name.split("."):
        named = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
        found = next((node for node in named if node.name == part), None)
        if found is None:
            return ""
        body = found.body if isinstance(found, ast.ClassDef) else ()
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    return (ast.get_docstring(found) or "").partition("\n")[0]


def section(key: str, runs: Sequence[Passed], idle: Passed) -> str:
    """One way as the page shows it."""
    title, story = WAYS[key]
    steps = way(runs, idle)
    lines = [f"## {title}", "", story, ""]
    for number, (file, name) in enumerate(steps, 1):
        said = "" if name.endswith("__") else docstring(file, name)
        said = said or (ast.get_docstring(_tree(file)) or "").partition("\n")[0]
        lines.append(f"{number}. [{file}](../../src/carillon/{file}): `{name}`. {said}")
    beside = {room(file) for run in [*runs, idle] for file, _ in run} - {room(file) for file, _ in steps}
    if beside:
        lines += ["", "Also passed, at varying places: " + ", ".join(f"`{name}`" for name in sorted(beside))]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the three programs and write the page."""
    parts = [_HEAD]
    with Postgres() as postgres, Redis() as redis, RabbitMQ() as rabbit, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        recorded = {
            "http": walks.http(folder / "http", postgres.database(), TIMES, idle=True),
            "push-worker": walks.push_worker(
                folder / "push", postgres.database(), TIMES, rabbit=rabbit, redis_server=redis, idle=True
            ),
            "billing": walks.billing(folder / "billing", postgres.database(), TIMES, redis_server=redis, idle=True),
        }
    for key, (*runs, idle) in recorded.items():
        parts.append(section(key, runs, idle))
    PAGE.write_text("\n".join(parts))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
