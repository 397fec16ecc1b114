"""`make bench AGAINST=commit`: the parts of another commit's bench and of this one in turns, ratio by ratio."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
ELSEWHERE = ROOT / ".bench"
ALLOWED = 0.05
"""A ratio that is worse by more than this share is named."""
ROUNDS = 2
NAMES = "import json, bench.__main__ as found; print(json.dumps(list(found.PARTS)))"


class Compared(msgspec.Struct, frozen=True):
    """One ratio of the bench, once for each round of both checkouts."""

    name: str
    then: list[float]
    now: list[float]
    at_most: bool

    @property
    def change(self) -> float:
        """Above 1 is better than before."""
        before, after = statistics.median(self.then), statistics.median(self.now)
        better, worse = (before, after) if self.at_most else (after, before)
        return better / worse if worse else float("inf")

    def line(self) -> str:
        then, now = (" ".join(f"{figure:.3g}" for figure in found) for found in (self.then, self.now))
        verdict = "ok" if self.change >= 1 - ALLOWED else "worse"
        return f"BESIDE {self.name:34} then {then:18} now {now:18} change {self.change:.2f} {verdict}"


def beside(commit: str, chosen: list[str]) -> int:
    """Measure the parts that both checkouts have, in turns, so that a busy minute hits both alike."""
    other = _checkout(commit)
    known = _parts(other)
    parts = [part for part in chosen or _parts(ROOT) if part in known]
    for part in [part for part in chosen if part not in known]:
        print(f"{commit} has no part {part}")
    broken = False
    for part in parts:
        found: dict[str, Compared] = {}
        for number in range(ROUNDS):
            sys.stderr.write(f"{part}, round {number + 1} of {ROUNDS}\n")
            # The second round goes the other way round: a machine that grows slower must not favour either.
            turns = (other, ROOT) if number % 2 == 0 else (ROOT, other)
            for checkout in turns:
                _add(found, _measured(checkout, part), now=checkout is ROOT)
        for ratio in found.values():
            if ratio.then and ratio.now:
                print(ratio.line(), flush=True)
                broken = broken or ratio.change < 1 - ALLOWED
    return int(broken)


def _checkout(commit: str) -> Path:
    """A work tree of the commit with an environment of its own; kept for the next time."""
    name = _said(["git", "rev-parse", "--short", f"{commit}^{{commit}}"], ROOT).strip()
    folder = ELSEWHERE / name
    if not folder.exists():
        _said(["git", "worktree", "add", "--force", "--detach", str(folder), name], ROOT)
    subprocess.run(["make", "--silent", "dev"], cwd=folder, check=True, stdout=sys.stderr)
    return folder


def _parts(checkout: Path) -> list[str]:
    found: list[str] = json.loads(_said([str(checkout / ".venv/bin/python"), "-c", NAMES], checkout))
    return found


def _measured(checkout: Path, part: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(checkout / ".venv/bin/python"), "-m", "bench", part], cwd=checkout, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        sys.stderr.write(f"{part} failed in {checkout.name}\n")
        return []
    found: list[dict[str, Any]] = json.loads((checkout / ".bench/results.json").read_text())["ratios"]
    return found


def _add(found: dict[str, Compared], ratios: list[dict[str, Any]], *, now: bool) -> None:
    for ratio in ratios:
        known = found.setdefault(ratio["name"], Compared(ratio["name"], [], [], ratio["at_most"]))
        (known.now if now else known.then).append(ratio["figure"])


def _said(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
