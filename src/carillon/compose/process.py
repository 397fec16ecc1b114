"""What every part of one process is built with."""

from typing import NamedTuple

from carillon.config.settings import Settings
from carillon.domain.ports import Clock, Observer


class Process(NamedTuple):
    """Settings and what they were read into, the clock, who listens, and the name leases are held under."""

    settings: Settings
    chains: dict[str, tuple[str, ...]]
    clock: Clock
    observe: Observer
    owner: str

    @property
    def used(self) -> set[str]:
        """Every provider that some channel uses."""
        return {name for chain in self.chains.values() for name in chain}
