"""Every concern that both engines keep alike."""

from carillon.ledger.admin import AdminStore
from carillon.ledger.audit import AuditStore
from carillon.ledger.breakers import BreakerStore
from carillon.ledger.history import HistoryStore
from carillon.ledger.jobs import JobStore
from carillon.ledger.keys import KeyStore
from carillon.ledger.outbox import OutboxStore
from carillon.ledger.preferences import PreferenceStore
from carillon.ledger.seal_keys import SealKeyStore
from carillon.ledger.streams import StreamStore
from carillon.ledger.suppressions import SuppressionStore
from carillon.ledger.templates import TemplateStore
from carillon.ledger.tickets import TicketStore
from carillon.ledger.upkeep import UpkeepStore


class Stores(
    AdminStore,
    AuditStore,
    BreakerStore,
    HistoryStore,
    JobStore,
    KeyStore,
    OutboxStore,
    PreferenceStore,
    SealKeyStore,
    StreamStore,
    SuppressionStore,
    TemplateStore,
    TicketStore,
    UpkeepStore,
):
    """A store per concern, over one engine."""
