"""Document 004's task picker, built from its settings."""

import os
import socket

from carillon.compose.process import Process
from carillon.config.picker import AUTO
from carillon.config.settings import Settings
from carillon.ledger.opening import Ledger
from carillon.system import new_id
from carillon.upkeep.lease_cleanup import LeaseCleanup


def owner(settings: Settings) -> str:
    """What this process is called in the leases it holds: host and process id, or the document's instance id."""
    picker = settings.task_picker
    if picker is None:
        return f"{socket.gethostname()}/{os.getpid()}"
    return new_id() if picker.instance_id in AUTO else picker.instance_id


def lease_cleanup(process: Process, ledger: Ledger) -> LeaseCleanup | None:
    """None where expired leases are simply claimed again."""
    picker = process.settings.task_picker
    if picker is None:
        return None
    return LeaseCleanup(ledger, ledger.signal, process.observe, process.clock, picker.lease_cleanup_interval)
