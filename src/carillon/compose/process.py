"""What every part of one process is built with."""

import os
import socket

import msgspec

from carillon.compose import from_settings
from carillon.config.picker import AUTO
from carillon.config.settings import Settings
from carillon.domain.events import PartStarted, PartStopped
from carillon.domain.ports import Clock, Observer
from carillon.system import SystemClock, new_id


class Process(msgspec.Struct, frozen=True):
    """Settings and what they were read into, the clock, the observer, and the name that leases are held under."""

    settings: Settings
    chains: dict[str, tuple[str, ...]]
    clock: Clock
    observe: Observer
    owner: str
    services: frozenset[str] = frozenset()
    """Of a blueprint that consists of several services: which of them this process is."""
    share_port: bool = False
    """Other processes listen on the same port."""
    embedded: bool = False
    """A guest in another program: it has no listener, ends no process and speaks into the host's log."""

    @property
    def used(self) -> set[str]:
        """Every provider that some channel uses."""
        return {name for chain in self.chains.values() for name in chain}

    def tell_started(self, part: str, detail: str | None = None) -> None:
        """A line of log where there is no API to ask."""
        if self.settings.http.surface == "probes":
            self.observe(PartStarted(part=part, detail=detail))

    def tell_stopped(self, part: str) -> None:
        if self.settings.http.surface == "probes":
            self.observe(PartStopped(part=part))


def process_of(settings: Settings, observe: Observer, **more: object) -> Process:
    """The process that these settings describe; ConfigurationError where they cannot work."""
    chains = from_settings.chains(settings)
    from_settings.lanes(settings)
    fields = {"chains": chains, "clock": SystemClock(), "observe": observe, "owner": owner(settings), **more}
    return Process(settings, **fields)  # type: ignore[arg-type]


def owner(settings: Settings) -> str:
    """What this process is called in the leases it holds: host and process id, or sse's instance id."""
    picker = settings.task_picker
    if picker is None:
        return f"{socket.gethostname()}/{os.getpid()}"
    return new_id() if picker.instance_id in AUTO else picker.instance_id
