"""What providers report back: the goals that each channel can reach, and how long a delivery report may take."""

from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.timing import GOALS, duration
from carillon.providers import callback, has_receipts, is_told, tells

DEADLINE = "receipt_deadline"
_LONGEST_SECONDS = 30 * 86_400.0
_SHORTEST_SECONDS = 1.0
Chains = dict[str, tuple[str, ...]]


def goals(settings: Settings, chains: Chains) -> dict[str, frozenset[str]]:
    """For each channel the goals that one of its providers can report."""
    return {
        channel: frozenset[str]().union(*(_goals_of(settings, name) for name in chain))
        for channel, chain in chains.items()
    }


def _goals_of(settings: Settings, name: str) -> frozenset[str]:
    options = settings.providers.get(name, {"kind": "sandbox"})
    kind = str(options.get("kind"))
    proven = has_receipts(kind) and bool(options.get(callback(kind).proof)) and is_told(kind, options)
    return tells(kind, proven=proven)


def deadlines(settings: Settings, chains: Chains) -> dict[str, float]:
    """For each provider with `receipt_deadline`, its seconds; refuses one that no report could keep."""
    found: dict[str, float] = {}
    for name in sorted({name for chain in chains.values() for name in chain}):
        said = settings.providers.get(name, {}).get(DEADLINE)
        if said is None:
            continue
        seconds = duration(said)
        if seconds is None or not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
            raise ConfigurationError(f"providers.{name}.{DEADLINE}: write a duration from 1s to 30d, such as 10m")
        if "delivered" not in _goals_of(settings, name):
            raise ConfigurationError(
                f"providers.{name}.{DEADLINE}: this provider never reports a delivery, so every message would count as "
                "not delivered; remove it, or set the option that proves the vendor's callbacks, and for Twilio "
                "status_callback (with public_base_url if it begins with /)"
            )
        found[name] = seconds
    return found


def remarks(settings: Settings, chains: Chains) -> list[tuple[str, str]]:
    """For each channel that cannot reach a goal, what the doctor says about it."""
    found: list[tuple[str, str]] = []
    for channel, able in sorted(goals(settings, chains).items()):
        lacking = [goal for goal in GOALS if goal not in able]
        if lacking:
            said = f"reports {', '.join(goal for goal in GOALS if goal in able) or 'nothing'}; "
            found.append((channel, said + f"a chain that waits for {' or '.join(lacking)} must name it last"))
    return found
