"""Named points at which a fault test may kill, stop, delay or break this process."""

import os
import signal
import time

from carillon.domain.errors import CarillonError

VARIABLE = "CARILLON_FAULTPOINTS"


class InjectedFault(CarillonError):
    """Raised by an armed faultpoint."""


def _armed() -> dict[str, tuple[str, int]]:
    """`name=action[@hit]` parts, separated by commas: `after_claim=exit9@2,before_settle=sleep:200`."""
    points: dict[str, tuple[str, int]] = {}
    for part in os.environ.get(VARIABLE, "").split(","):
        name, _, action = part.strip().partition("=")
        if name and action:
            action, _, hit = action.partition("@")
            points[name] = (action, int(hit or "1"))
    return points


_POINTS = _armed()
_HITS: dict[str, int] = {}


def faultpoint(name: str) -> None:
    """Run the action that a test armed for this point; else this costs one look-up."""
    if _POINTS and name in _POINTS:
        _strike(name)


def _strike(name: str) -> None:
    action, hit = _POINTS[name]
    _HITS[name] = _HITS.get(name, 0) + 1
    if _HITS[name] != hit:
        return
    # Written without a logger, so that a test can tell a fault that the process survived from one that never came.
    os.write(2, f"faultpoint {name}: {action}\n".encode())
    if action == "exit9":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action.startswith("sleep:"):
        time.sleep(int(action.removeprefix("sleep:")) / 1000)
    elif action == "raise":
        raise InjectedFault(name)
