"""What this process has done with each list queue since it started."""

import msgspec

from carillon.domain.claims import Settled
from carillon.domain.events import Event, RouteAttempted
from carillon.domain.queue_events import MessageSwept


class Runs(msgspec.Struct):
    """Runs of a queue's handler by what came of them, and messages taken back from workers that died."""

    success: int = 0
    retry: int = 0
    failed: int = 0
    swept: int = 0
    seconds: float = 0.0
    """What the runs took together."""


class QueueTally:
    """An Observer that remembers sums only."""

    def __init__(self) -> None:
        self._runs: dict[str, Runs] = {}

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        match event:
            case RouteAttempted(audience_kind="queue"):
                if event.outcome != "none" and event.settled is not Settled.STALE:
                    self._ran(event)
            case MessageSwept():
                self.of(event.queue).swept += 1
            case _:
                pass

    def of(self, queue: str) -> Runs:
        """The sums of one queue, which go on counting."""
        found = self._runs.get(queue)
        if found is None:
            found = self._runs[queue] = Runs()
        return found

    def _ran(self, event: RouteAttempted) -> None:
        runs = self.of(event.channel)
        match event.verdict:
            case "finish":
                runs.success += 1
            case "retry":
                runs.retry += 1
            case "bury":
                runs.failed += 1
            case _:
                return
        runs.seconds += event.duration_ms / 1000
