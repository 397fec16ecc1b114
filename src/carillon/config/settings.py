"""Every section of the settings, and the sections of the engine itself."""

from typing import Any, ClassVar, Literal
from urllib.parse import quote

from carillon.config.billing import Billing, GatewaySettings
from carillon.config.messages import MailSettings, MessageSettings, SmsSettings
from carillon.config.policies import Policies
from carillon.config.sections import (
    Alerts,
    Auth,
    Bounds,
    HistorySettings,
    Http,
    Kafka,
    Log,
    MetricSettings,
    Push,
    RabbitmqDoor,
    RetentionSettings,
    Section,
    ServicebusDoor,
    SseSettings,
    Stream,
    TaskPicker,
    TraceSettings,
)
from carillon.domain.lanes import Lane
from carillon.domain.queues import Policy, QueueUpkeep


class LedgerSettings(Section, frozen=True):
    """The ledger's database, leases and seals."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "lease_seconds": (0.05, 86_400),
        "operation_timeout_seconds": (0.001, 3600),
    }

    url: str = "sqlite:///carillon.db"
    lease_seconds: float = 30.0
    allow_unsafe: bool = False
    """True accepts a PostgreSQL that may lose commits (fsync or synchronous_commit off)."""
    allow_migration: int = 0
    """Accepts a ledger that a newer release has migrated, up to this migration; for a rollback."""
    operation_timeout_seconds: float = 10.0
    max_connections: int | None = None
    max_idle_connections: int | None = None
    connection_lifetime_seconds: float | None = None
    record_attempts: bool = True
    replay: Literal["redrive", "new_intent"] = "redrive"
    """How a dead letter is sent again: by redrive, or only by a new intent of its producer."""
    share_breakers: bool = False
    """True keeps breakers in the ledger if there is no Redis, so that processes share them."""
    lease_keys: str | None = None
    """The prefix of lease keys in Redis; routes are leased there too."""
    shorten_calls: bool = False
    """True shortens calls that would outlive their lease; False refuses such settings."""
    seal_keys: list[str] = []
    """Keys of 32 bytes in base64 for addresses and contents: the first one seals, all of them open."""
    seal_keys_file: str | None = None
    """A file with one such key a line, in place of `seal_keys`."""


class Redis(Section, frozen=True):
    """The Redis that streams, leases and a fleet's breakers share: one URL, or an address with its parts."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "db": (0, 1_000_000),
        "operation_timeout_seconds": (0.001, 3600),
    }

    url: str | None = None
    address: str | None = None
    password: str | None = None
    db: int = 0
    cluster: bool = False
    """True for a Redis Cluster, of which the URL names one node; breakers, targets and alerts work there."""
    operation_timeout_seconds: float = 2.0

    def location(self) -> str | None:
        """The URL, from either form; None without Redis."""
        if self.url is not None or self.address is None:
            return self.url
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{login}{self.address}/{self.db}"


class DirectorySettings(Section, frozen=True):
    """Where people are looked up."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "timeout_seconds": (0.001, 3600),
        "concurrency": (1, 10_000),
    }

    url: str
    path: str = "/api/v1/internal/users/{user_id}"
    timeout_seconds: float = 1.0
    concurrency: int = 64


class CatalogueSettings(Section, frozen=True):
    """Which notification types there are; `blueprint:` stands for the blueprint's own folder."""

    file: str | None = None


class Work(Section, frozen=True):
    """How much a process works on at once."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "concurrency": (1, 100_000),
        "batch": (1, 10_000),
        "poll_seconds": (0.001, 3600),
    }

    concurrency: int = 1000
    batch: int = 500
    poll_seconds: float = 0.25
    drain_seconds: float = 20.0
    start_seconds: float = 0.0
    """How long a start waits for servers that are away before it fails; 0 waits without limit."""
    max_in_flight: dict[str, int] = {}
    strict_lanes: bool = False
    first_claims: int = 1
    """The claim limit of a new process; each finished attempt raises it by one."""
    claim_on_accept: bool = True


class GroupMember(Section, frozen=True):
    """One group by name: a tenant, or an endpoint as `host:port`."""

    weight: int = 1
    """How many turns it gets where others get one."""
    cap: int | None = None
    tenant: str | None = None
    """The tenant whose endpoint it is; an endpoint without one is that of notifications without a tenant."""


class GroupSettings(Section, frozen=True):
    """How the routes of one provider share turns."""

    by: Literal["tenant", "endpoint", "person", "none"] | None = None
    """None: the endpoint for webhooks, the person for live streams, the tenant for all others."""
    cap: int | None = None
    """Calls of one group at once, over all processes; None: for webhooks `concurrency_per_endpoint`, else no cap."""
    members: dict[str, GroupMember] = {}


class LocaleSettings(Section, frozen=True):
    """How a requested locale becomes a supported one."""

    default: str = "en-US"
    on_missing: Literal["error", "default", "chain"] = "error"
    supported: list[str] = []
    time_zone: str = "UTC"
    """The time zone of people who have said none, for days and times in templates."""


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
    """How people's preferences apply."""

    quiet_hours: bool = False
    """True delays notifications that are not urgent until the end of the person's quiet hours."""
    holidays: dict[str, list[str]] = {}
    """Calendars of whole quiet days by name, such as a country: `MM-DD` for every year, or `YYYY-MM-DD`."""


class DrillSettings(Section, frozen=True):
    """For tests and drills; refused when ENV=production."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "time_scale": (1e-6, 1e6),
    }

    time_scale: float = 1.0
    """Every wait between attempts is multiplied by this."""


class FirstSteps(Section, frozen=True):
    """The example request that the process prints at its start."""

    path: str = "/api/v1/notifications/send"
    body: str = (
        '{"templateKey":"welcome","channel":"push","recipient":"demo-device",'
        '"data":{"name":"Ada","link":"https://example.org/start"}}'
    )
    see: str = "/api/v1/notifications"


class CategorySettings(Section, frozen=True):
    """One kind of messages that people may want or not."""

    required: bool = False
    """True: nobody can switch it off."""
    channels: dict[str, bool] = {}
    """Whether a person who chose nothing gets it on a channel; on channels that are not named, yes."""
    titles: dict[str, str] = {}
    """What people read, by language."""
    texts: dict[str, str] = {}
    """One sentence that says what comes with it, by language."""
    urgent: bool = False
    """True: quiet hours do not delay it."""
    throttle: str | None = None
    """At most so many for each person in a time, such as `3 in 1h`."""
    overflow: Literal["skip", "digest"] = "skip"
    """What becomes of more than that: skipped, or told in a digest when the time is over."""


class PageSettings(Section, frozen=True):
    """How the page looks on which people choose."""

    name: str = ""
    """Whose page it is."""
    accent: str = "#1f5fbf"
    """The colour of buttons, as `#rrggbb`."""
    accent_dark: str = "#8ab4ff"
    """The same where the reader prefers the dark."""
    logo: str | None = None
    """The https URL of a picture."""
    home: str | None = None
    """Where the name leads to."""


class ConsentSettings(Section, frozen=True):
    """Links to the page on which people choose, and what mails say about leaving."""

    bounds: ClassVar[dict[str, Bounds]] = dict.fromkeys(
        ("link_seconds", "unsubscribe_seconds"), (60, 10 * 365 * 86_400)
    )

    keys: list[str] = []
    """Texts of at least 32 characters: the first makes links, all of them open links; without one there is no page."""
    url: str | None = None
    """The public URL of this program, for the links in mails; without one, its own address if that is on loopback."""
    link_seconds: float = 30 * 86_400.0
    """How long a link to a person's page works."""
    unsubscribe_seconds: float = 365 * 86_400.0
    """How long after its acceptance a mail can be used to leave its category."""
    page: PageSettings = PageSettings()


class Tenant(Section, frozen=True):
    """The settings of one tenant."""

    page: PageSettings | None = None
    """How the tenant's page looks; as `consent.page` without one."""

    categories: dict[str, CategorySettings] = {}
    """The tenant's own categories; one that everybody has is replaced by name."""
    default_locale: str | None = None
    time_zone: str | None = None
    """The time zone of people who have said none, for days and times in templates."""
    brand: str | None = None
    """The section `[brand.<name>]` that its templates see; by default the one with the tenant's own name."""
    requests_per_second: float | None = None
    """Calls of providers for this tenant, over all processes; `[tenant."*"]` is every tenant without its own."""
    sender: str | None = None
    """The sender of the tenant's emails, in place of the provider's."""
    sms_countries: list[str] | None = None
    """The countries that the tenant's text messages go to, in place of `sms.countries`; empty is every country."""


class SynchronousSettings(Section, frozen=True):
    """Delivery while the caller waits; needs `[lanes.synchronous]`."""

    use_cases: list[str] = []
    """Template keys that contain these words one after another are always synchronous."""
    slots: int = 200
    """Synchronous deliveries of one process at once; further ones are refused."""


class ProbingSettings(Section, frozen=True):
    """Health checks of providers whose breaker is open; they send no message."""

    interval_seconds: float = 30.0
    providers: list[str] = []


class Receipts(Section, frozen=True):
    """Vendors' reports after delivery, and their effects."""

    trust_forwarded: bool = False
    """True trusts X-Forwarded-Proto, -Host and -Port for the URL that a vendor called; only behind your own proxy."""
    bounces_before_silence: int = 2
    """The number of reports of a dead address that suppresses the address."""
    look_again_seconds: float = 3.0
    """How often the process matches receipts again that came before their message."""


class SuppressionSettings(Section, frozen=True):
    """For how long nothing is sent to an address, by the kind of the suppression; 0 is for ever."""

    bounds: ClassVar[dict[str, Bounds]] = dict.fromkeys(
        ("bounced_seconds", "complained_seconds", "unsubscribed_seconds", "invalid_seconds"), (0, 100 * 365 * 86_400)
    )

    bounced_seconds: float = 90 * 86_400.0
    """After a hard bounce. Mailboxes are opened again and vendors err; one mail in 90 days harms no reputation."""
    complained_seconds: float = 0.0
    """After a complaint: only the person can take it back."""
    unsubscribed_seconds: float = 0.0
    """After an unsubscribe, or a block at the vendor: only the person can take it back."""
    invalid_seconds: float = 30 * 86_400.0
    """After a vendor refused a number, device token or endpoint for good. Numbers change hands; asking costs a call."""
    share_bounces: bool = False
    """True makes a hard bounce hold for every tenant, not only for the one whose message bounced."""


class Settings(Section, frozen=True):
    """One complete configuration."""

    blueprint: str
    service: str = "carillon"
    allow_sandbox: bool = False
    http: Http = Http()
    ledger: LedgerSettings = LedgerSettings()
    redis: Redis = Redis()
    stream: Stream | None = None
    rabbitmq_door: RabbitmqDoor = RabbitmqDoor()
    servicebus_door: ServicebusDoor = ServicebusDoor()
    kafka: Kafka = Kafka()
    priorities: dict[str, Literal["HIGH", "MEDIUM", "LOW"]] = {}
    """The priority of messages without one, by event type, `prefix.*` or `*`."""
    push: Push | None = None
    sse: SseSettings | None = None
    queue: dict[str, Policy] = {}
    beat: QueueUpkeep = QueueUpkeep()
    billing: Billing | None = None
    gateway: GatewaySettings = GatewaySettings()
    directory: DirectorySettings | None = None
    catalogue: CatalogueSettings = CatalogueSettings()
    admin_emails: dict[str, list[str]] = {}
    auth: Auth = Auth()
    work: Work = Work()
    task_picker: TaskPicker | None = None
    channels: dict[str, list[str]] = {}
    providers: dict[str, dict[str, Any]] = {}
    lanes: dict[str, Lane] = {}
    groups: dict[str, GroupSettings] = {}
    """By provider."""
    policy: Policies = Policies()
    locale: LocaleSettings = LocaleSettings()
    tenant: dict[str, Tenant] = {}
    categories: dict[str, CategorySettings] = {}
    """What people can choose, by name."""
    brand: dict[str, dict[str, Any]] = {}
    """What templates see as `brand`, such as logo, colours and footer; `[brand.default]` is under every other."""
    templates: TemplateSettings = TemplateSettings()
    preferences: PreferenceSettings = PreferenceSettings()
    mail: MailSettings = MailSettings()
    consent: ConsentSettings = ConsentSettings()
    sms: SmsSettings = SmsSettings()
    message: dict[str, MessageSettings] = {}
    """By template key, or a prefix with `*`."""
    retention: RetentionSettings = RetentionSettings()
    history: HistorySettings = HistorySettings()
    log: Log = Log()
    metrics: MetricSettings = MetricSettings()
    traces: TraceSettings = TraceSettings()
    drill: DrillSettings = DrillSettings()
    first_steps: FirstSteps = FirstSteps()
    synchronous: SynchronousSettings = SynchronousSettings()
    probing: ProbingSettings = ProbingSettings()
    receipts: Receipts = Receipts()
    suppressions: SuppressionSettings = SuppressionSettings()
    alerts: Alerts = Alerts()
    strict_receipts: bool = False
    """True reports `delivered` only after a vendor's receipt."""
    idempotency_ttl_seconds: float = 30 * 86400.0
