"""Draining a backlog over HTTP to a local nginx."""

from collections.abc import Callable

from bench import peers
from bench.measure import Outcome, Ratio, interleaved
from bench.ours import WEBHOOKS, WIDE, drain, plain
from bench.stage import nginx, run
from tests.support.servers import Postgres

PART = "http"
JOBS, CALLS, CONNECTIONS = 30_000, 40_000, 100
OURS, BARE = "Carillon, signed webhooks", "our HTTP client alone"


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """Calls a second in one process."""
    installed = peers.install(progress=progress)
    graphile = next((one for one in installed.found if one.name == "graphile-worker http"), None)
    with nginx() as url:
        subjects: dict[str, Callable[[], float]] = {
            OURS: lambda: drain(postgres.database(), JOBS, url),
            BARE: lambda: float(run("bare_http", url, str(CALLS), str(CONNECTIONS))["rate"]),
        }
        if graphile is not None:
            peer = graphile
            subjects[peer.name] = lambda: peer.jobs / peers.drain(peer, postgres.database(), peer.jobs, url)
        outcome = Outcome(interleaved(PART, "calls/s", subjects, rounds, progress))
    ours = outcome.median(OURS)
    outcome.ratios = [Ratio("http/bare-client", ours / outcome.median(BARE), 0.8)]
    if graphile is not None:
        outcome.ratios.append(Ratio("http/graphile-worker", ours / outcome.median(graphile.name), 1.4))
    outcome.settings = {
        "http": f"{CONNECTIONS} connections, keep-alive, nginx with one worker",
        OURS: f"{plain(WIDE)}, {plain(WEBHOOKS)}",
    }
    return outcome
