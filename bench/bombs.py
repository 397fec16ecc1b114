"""What templates that take long cost other requests: rendered in a process of their own, and in a thread instead."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

from bench.measure import Outcome, Ratio, interleaved
from bench.stage import carillon, wrk
from tests.support.servers import Postgres

PART = "bombs"
ROUNDS = 5
ALONE, BESIDE = "p99 of welcome alone", "p99 of welcome beside bombs"
WITH_THREAD = "p99 of welcome beside bombs, with a thread"
BOMBS = {
    "loops": "{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}",
    "output": "{% set t = range(5000)|join('xxxxxxxx') %}{% for a in range(9999) %}{{ t }}{% endfor %}",
    "recursion": "{% macro m(n) %}{{ n }}{{ m(n + 1) }}{% endmacro %}{{ m(1) }}",
    "table": "{% for a in range(5000) %}<tr>{% for b in range(50) %}<td>{{ b|money('EUR') }}</td>{% endfor %}</tr>"
    "{% endfor %}",
}


def measure(postgres: Postgres, progress: Callable[[str], None], seconds: float = 6.0) -> Outcome:
    """`make bench ONLY=bombs`, on a quiet machine: on a full one no core is left for the process."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = Outcome(interleaved(PART, "ms", waits(postgres, Path(folder), seconds), ROUNDS, progress))
    outcome.ratios = [
        Ratio("bombs/p99-alone-to-beside", outcome.median(ALONE) / outcome.median(BESIDE), 0.5),
        Ratio("bombs/p99-thread-to-process", outcome.median(WITH_THREAD) / outcome.median(BESIDE), 1.0),
    ]
    return outcome


def waits(postgres: Postgres, folder: Path, seconds: float) -> dict[str, Callable[[], float]]:
    """The 99th percentile of accepting `welcome` over eight connections, without and with a stream of bombs beside."""
    for name, text in BOMBS.items():
        place = folder / f"bomb_{name}" / "en-US" / "email"
        place.mkdir(parents=True)
        (place / "html.jinja").write_text(text)
        (place / "subject.jinja").write_text("Bomb")

    def served(*, thread: bool) -> AbstractContextManager[tuple[Popen[str], str]]:
        env = {"DATABASE_URL": postgres.database(), "CARILLON_TEMPLATES__FOLDERS": f"blueprint:templates,{folder}"}
        return carillon(env, "--roles", "doors", runner="serve_with_thread" if thread else None)

    return {
        ALONE: lambda: _wait(served(thread=False), (), seconds),
        BESIDE: lambda: _wait(served(thread=False), tuple(BOMBS), seconds),
        WITH_THREAD: lambda: _wait(served(thread=True), tuple(BOMBS), seconds),
    }


def _wait(served: AbstractContextManager[tuple[Popen[str], str]], bombs: tuple[str, ...], seconds: float) -> float:
    with served as (_, address), ThreadPoolExecutor(len(BOMBS)) as pool:
        wrk(address, 1.0, connections=8)
        thrown = [
            pool.submit(
                wrk,
                address,
                seconds,
                connections=1,
                bodies=[{"templateKey": f"bomb_{name}", "channel": "email", "recipient": "eve@example.org"}],
            )
            for name in bombs
        ]
        found = wrk(address, seconds, connections=8)
        thrown_at = [one.result() for one in thrown]
        # A bomb that has no answer when the time is over is not among those that were accepted.
        if any(one["rate"] > 0 and one["bad"] == 0 for one in thrown_at):
            raise RuntimeError("a bomb was accepted")
        if found["bad"]:
            raise RuntimeError(f"{found['bad']:.0f} requests for welcome were not accepted")
    return found["p99_ms"]
