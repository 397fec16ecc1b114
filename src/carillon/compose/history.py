"""History, built from the settings: the loop that keeps it, and the place that is asked about it."""

from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.ledger.opening import Ledger
from carillon.system import new_id
from carillon.upkeep.history.clickhouse import ClickHouse
from carillon.upkeep.history.copier import History, HistoryRules


def keeping(process: Process, ledger: Ledger) -> History | None:
    """None where no history is wanted."""
    wanted = process.settings.history
    if wanted.url is None:
        return None
    rules = HistoryRules(
        batch=wanted.batch,
        poll_seconds=wanted.poll_seconds,
        lag_seconds=wanted.lag_seconds,
        lease_seconds=2 * wanted.timeout_seconds,
    )
    owner = f"{process.owner}/{new_id()}"
    archive = kept_at(process.settings)
    return History(ledger, archive, owner=owner, clock=process.clock, observer=process.observe, rules=rules)


def kept_at(settings: Settings) -> ClickHouse:
    """Where history is kept; ConfigurationError where it is not."""
    wanted = settings.history
    if wanted.url is None:
        raise ConfigurationError("history.url: no history is kept; name a ClickHouse, or chdb:///folder on one machine")
    return ClickHouse(wanted.url, keep_days=wanted.keep_days, timeout_seconds=wanted.timeout_seconds)
