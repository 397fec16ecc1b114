"""Every setting there is, with its default."""

from typing import Any, Literal
from urllib.parse import quote

import msgspec

from carillon.config.alerts import Alerts
from carillon.config.billing import Billing, Gateway
from carillon.config.history import History
from carillon.config.http import Auth, Http
from carillon.config.kafka import Kafka
from carillon.config.picker import TaskPicker
from carillon.config.policies import Policies
from carillon.config.push import Push
from carillon.config.sse import Sse
from carillon.domain.lanes import Lane
from carillon.domain.queue_policy import Beat, Policy
from carillon.upkeep.metrics.instruments import Instrument


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the settings; a name it does not know is a mistake worth stopping for."""


class Ledger(Section, frozen=True):
    """Where notifications are written down."""

    url: str = "sqlite:///carillon.db"
    lease_seconds: float = 30.0
    allow_unsafe: bool = False
    """True accepts a PostgreSQL that may lose commits (fsync or synchronous_commit off)."""
    allow_migration: int = 0
    """Starts on a ledger that a newer release has migrated, up to this migration; for going back to this one."""
    replica_urls: list[str] = []
    operation_timeout_seconds: float = 10.0
    max_connections: int | None = None
    max_idle_connections: int | None = None
    connection_lifetime_seconds: float | None = None
    record_attempts: bool = True
    replay: Literal["redrive", "new_intent"] = "redrive"
    """How a dead letter is tried again: under its own id, or only by a new intent of its producer."""
    share_breakers: bool = False
    """True keeps breakers in the ledger where there is no Redis, so that a fleet shares them."""
    lease_keys: str | None = None
    """The prefix of lease keys in Redis, where routes are leased there as well."""
    shorten_calls: bool = False
    """True shortens calls that would outlive their lease; False refuses such settings."""
    seal_keys: list[str] = []
    """Keys of 32 bytes in base64 that addresses and contents are sealed with: the first seals, all of them open."""
    seal_keys_file: str | None = None
    """A file with one such key a line, in place of `seal_keys`."""


class Redis(Section, frozen=True):
    """The Redis that streams, leases and a fleet's breakers share: one URL, or an address with its parts."""

    url: str | None = None
    address: str | None = None
    password: str | None = None
    db: int = 0
    replica_addresses: list[str] = []
    operation_timeout_seconds: float = 2.0

    def location(self) -> str | None:
        """The URL, whichever way it was written; None without Redis."""
        if self.url is not None or self.address is None:
            return self.url
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{login}{self.address}/{self.db}"


class Stream(Section, frozen=True):
    """The Redis Stream that intents are read from."""

    name: str
    block_seconds: float = 2.0
    batch: int = 500
    offset_prefix: str = "notification:stream_offsets"
    lease_prefix: str = "notification:stream_leases"


class RabbitmqDoor(Section, frozen=True):
    """The RabbitMQ queue that send requests are read from; none without its name."""

    url: str | None = None
    queue: str | None = None
    queue_type: Literal["classic", "quorum"] = "classic"
    """Of a queue that is not there yet; one that is there stays as its owner made it."""
    prefetch: int = 200
    """Deliveries held at once that are not written down yet."""


class Directory(Section, frozen=True):
    """Where people are looked up."""

    url: str
    path: str = "/api/v1/internal/users/{user_id}"
    timeout_seconds: float = 1.0
    concurrency: int = 64


class Catalogue(Section, frozen=True):
    """Which notification types there are; `blueprint:` stands for the blueprint's own folder."""

    file: str | None = None


class Work(Section, frozen=True):
    """How much a process takes on."""

    concurrency: int = 1000
    batch: int = 500
    poll_seconds: float = 0.25
    drain_seconds: float = 20.0
    start_seconds: float = 0.0
    """How long a start waits for servers that are away before it fails; 0 waits for as long as it takes."""
    max_in_flight: dict[str, int] = {}
    strict_lanes: bool = False
    first_claims: int = 1
    """How much a process takes on at its start: more with each round that it survives."""
    claim_on_accept: bool = True


class LocaleSettings(Section, frozen=True):
    """How a wished locale becomes one that exists."""

    default: str = "en-US"
    on_missing: Literal["error", "default", "chain"] = "error"
    supported: list[str] = []


class TemplateSettings(Section, frozen=True):
    """Where templates lie and how they are rendered; `blueprint:` stands for the blueprint's own folder."""

    folders: list[str] = []
    missing_variable: Literal["error", "empty", "keep"] = "error"
    render: Literal["ingress", "downstream"] = "ingress"
    strict: bool = False
    """True refuses to start while a template is missing in a supported locale."""
    open_mount: bool = False
    """True serves /template-service to push workers without a token."""


class PreferenceSettings(Section, frozen=True):
    """What is made of people's preferences."""

    quiet_hours: bool = False
    """True puts off what is not urgent until somebody's quiet hours are over."""


class Retention(Section, frozen=True):
    """How long finished notifications and malformed intents are kept."""

    record_seconds: float = 30 * 86400.0
    malformed_seconds: float = 90 * 86400.0
    interval_seconds: float = 3600.0
    batch: int = 500


class MetricSettings(Section, frozen=True):
    """Where metrics go beside the OTEL_* variables, and under which names."""

    stdout: bool = False
    instruments: dict[str, Instrument] = {}
    only: bool = False
    """True exports the instruments named here and no others."""


class TraceSettings(Section, frozen=True):
    """Where spans go beside the OTEL_* variables."""

    stdout: bool = False


class Log(Section, frozen=True):
    """What is written to stdout."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "pretty"] = "auto"
    sentences: dict[str, str] = {}
    """By an attempt's verdict or an event's word, what its lines say instead of ours; fields stand in braces."""
    name_people: bool = False
    """True names the person in the lines about attempts."""


class Drill(Section, frozen=True):
    """For tests and drills; refused when ENV=production."""

    time_scale: float = 1.0
    """Every wait between attempts is multiplied by this."""


class FirstSteps(Section, frozen=True):
    """What the line at the start proposes to try."""

    path: str = "/api/v1/notifications/send"
    body: str = (
        '{"templateKey":"welcome","channel":"push","recipient":"demo-device",'
        '"data":{"name":"Ada","link":"https://example.org/start"}}'
    )
    see: str = "/api/v1/notifications"


class Tenant(Section, frozen=True):
    """What one tenant has of its own."""

    default_locale: str | None = None


class Synchronous(Section, frozen=True):
    """Delivery while the caller waits; needs `[lanes.synchronous]`."""

    use_cases: list[str] = []
    """Template keys that hold these words in a row are synchronous without being asked to."""
    slots: int = 200
    """Synchronous deliveries of one process at a time; more are refused, to be tried again."""


class Probing(Section, frozen=True):
    """Questions to providers whose breaker is open; they carry nobody's message."""

    interval_seconds: float = 30.0
    providers: list[str] = []


class Receipts(Section, frozen=True):
    """What vendors report later, and what comes of it."""

    trust_forwarded: bool = False
    """True believes X-Forwarded-Proto, -Host and -Port about the URL a vendor called; only behind a proxy of yours."""
    bounces_before_silence: int = 2
    """Reports that an address is dead before nothing more is sent there."""
    silence_seconds: float | None = None
    look_again_seconds: float = 3.0
    """How often receipts are looked at again that came before their message was known here."""


class Settings(Section, frozen=True):
    """One complete configuration."""

    blueprint: str
    service: str = "carillon"
    allow_sandbox: bool = False
    http: Http = Http()
    ledger: Ledger = Ledger()
    redis: Redis = Redis()
    stream: Stream | None = None
    rabbitmq_door: RabbitmqDoor = RabbitmqDoor()
    kafka: Kafka = Kafka()
    priorities: dict[str, Literal["HIGH", "MEDIUM", "LOW"]] = {}
    """Event types, `prefix.*` and `*` to the priority of messages that say none."""
    push: Push | None = None
    sse: Sse | None = None
    queue: dict[str, Policy] = {}
    beat: Beat = Beat()
    billing: Billing | None = None
    gateway: Gateway = Gateway()
    directory: Directory | None = None
    catalogue: Catalogue = Catalogue()
    admin_emails: dict[str, list[str]] = {}
    auth: Auth = Auth()
    work: Work = Work()
    task_picker: TaskPicker | None = None
    channels: dict[str, list[str]] = {}
    providers: dict[str, dict[str, Any]] = {}
    lanes: dict[str, Lane] = {}
    policy: Policies = Policies()
    locale: LocaleSettings = LocaleSettings()
    tenant: dict[str, Tenant] = {}
    templates: TemplateSettings = TemplateSettings()
    preferences: PreferenceSettings = PreferenceSettings()
    retention: Retention = Retention()
    history: History = History()
    log: Log = Log()
    metrics: MetricSettings = MetricSettings()
    traces: TraceSettings = TraceSettings()
    drill: Drill = Drill()
    first_steps: FirstSteps = FirstSteps()
    synchronous: Synchronous = Synchronous()
    probing: Probing = Probing()
    receipts: Receipts = Receipts()
    alerts: Alerts = Alerts()
    strict_receipts: bool = False
    """True calls nothing delivered before a vendor said so."""
    idempotency_ttl_seconds: float = 30 * 86400.0
