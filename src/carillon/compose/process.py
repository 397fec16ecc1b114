"""The settings, clock, observer and name with which every part of a process is built."""

import os
import socket

import msgspec

from carillon.compose import from_settings
from carillon.config.sections import AUTO
from carillon.config.settings import Settings
from carillon.domain.events import PartStarted, PartStopped
from carillon.domain.ports import Clock, Observer
from carillon.system import SystemClock, new_id


class Process(msgspec.Struct, frozen=True):
    """Settings, the providers of each channel, clock, observer, and the name under which the process holds leases."""

    settings: Settings
    chains: dict[str, tuple[str, ...]]
    clock: Clock
    observe: Observer
    owner: str
    services: frozenset[str] = frozenset()
    """The services of this process, in a blueprint that has several."""
    share_port: bool = False
    """Other processes listen on the same port."""
    embedded: bool = False
    """Runs inside another program: without a listener, and with the host's log."""

    @property
    def used(self) -> set[str]:
        """Every provider that some channel uses."""
        return {name for chain in self.chains.values() for name in chain}

    def tell_started(self, part: str, detail: str | None = None) -> None:
        """Log that a part started, in a process without an API."""
        if self.settings.http.surface == "probes":
            self.observe(PartStarted(part=part, detail=detail))

    def tell_stopped(self, part: str) -> None:
        if self.settings.http.surface == "probes":
            self.observe(PartStopped(part=part))


def process_of(settings: Settings, observe: Observer, **more: object) -> Process:
    """The process that these settings describe; raises ConfigurationError if they cannot work."""
    chains = from_settings.chains(settings)
    from_settings.lanes(settings)
    fields = {"chains": chains, "clock": SystemClock(), "observe": observe, "owner": owner(settings), **more}
    return Process(settings, **fields)  # type: ignore[arg-type]


def owner(settings: Settings) -> str:
    """The name of this process in its leases: host and process id, or the instance id of sse."""
    picker = settings.task_picker
    if picker is None:
        return f"{socket.gethostname()}/{os.getpid()}"
    return new_id() if picker.instance_id in AUTO else picker.instance_id
