"""One queue that Carillon is measured against, and the timing of it."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 120.0

Kind = Literal["postgres", "redis"]


@dataclass(frozen=True)
class Peer:
    """One queue, installed and ready: the settings shown are the settings its runner is handed."""

    name: str
    kind: Kind
    version: str
    settings: Mapping[str, Any]
    jobs: int
    command: tuple[str, ...]
    posts: bool = False
    parts: tuple[str, ...] = ("drain",)


@dataclass(frozen=True)
class Peers:
    """What could be installed, and why the rest could not."""

    found: tuple[Peer, ...]
    missing: Mapping[str, str]

    def __getitem__(self, name: str) -> Peer:
        for peer in self.found:
            if peer.name == name:
                return peer
        raise KeyError(f"{name} is missing: {self.missing.get(name, 'there is no such peer')}")


class DrainFailed(Exception):
    """A runner gave up, or took longer than it may."""


def drain(peer: Peer, dsn_or_url: str, jobs: int, url: str | None = None) -> float:
    """Fill a fresh database or flushed Redis with jobs, then time one worker process from first to last, in seconds.

    The clock runs inside the worker: it starts with the first job's execution and stops when every job has run and
    the queue itself says that none remains.
    """
    if peer.posts != (url is not None):
        raise ValueError(f"{peer.name} {'needs' if peer.posts else 'takes no'} url")
    _run(peer, "fill", dsn_or_url, jobs, url)
    result = json.loads(_run(peer, "work", dsn_or_url, jobs, url).splitlines()[-1])
    if result["jobs"] != jobs:
        raise DrainFailed(f"{peer.name} ran {result['jobs']} of {jobs} jobs")
    return float(result["seconds"])


def _run(peer: Peer, phase: str, target: str, jobs: int, url: str | None) -> str:
    order = [phase, target, str(jobs), json.dumps(peer.settings), *([url] if url else [])]
    environment = os.environ | dict(peer.settings.get("environment", {}))
    try:
        done = subprocess.run(
            [*peer.command, *order],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise DrainFailed(f"{peer.name} did not {phase} {jobs} jobs within {TIMEOUT_SECONDS:.0f} s") from late
    if done.returncode != 0:
        raise DrainFailed(f"{peer.name} could not {phase}: {done.stderr.strip()[-2000:]}")
    return done.stdout
