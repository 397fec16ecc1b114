"""Every setting there is, with its default."""

from typing import Any, Literal

import msgspec

from carillon.domain.backoff import Backoff
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.errors import ConfigurationError
from carillon.domain.lanes import Lane
from carillon.domain.policy import RetryPolicy


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the settings; a name it does not know is a mistake worth stopping for."""


class Http(Section, frozen=True):
    """Where and how the HTTP listener serves."""

    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 256 * 1024
    max_requests_in_flight: int = 1024
    header_timeout_seconds: float = 10.0


class Ledger(Section, frozen=True):
    """Where notifications are written down."""

    url: str = "sqlite:///carillon.db"
    lease_seconds: float = 30.0
    allow_unsafe: bool = False
    """True accepts a PostgreSQL that may lose commits (fsync or synchronous_commit off)."""


class Redis(Section, frozen=True):
    """Shared breaker state, where a fleet has Redis."""

    url: str | None = None


class Auth(Section, frozen=True):
    """Bearer tokens; without a secret only loopback is served."""

    secret: str | None = None
    issuer: str | None = None
    audience: str | None = None


class Work(Section, frozen=True):
    """How much a process takes on."""

    concurrency: int = 1000
    batch: int = 500
    poll_seconds: float = 0.25
    drain_seconds: float = 20.0
    max_in_flight: dict[str, int] = {}
    strict_lanes: bool = False


class LocaleSettings(Section, frozen=True):
    """How a wished locale becomes one that exists."""

    default: str = "en-US"
    on_missing: Literal["error", "default", "chain"] = "error"


class TemplateSettings(Section, frozen=True):
    """Where templates lie and how they are rendered; `blueprint:` stands for the blueprint's own folder."""

    folders: list[str] = []
    missing_variable: Literal["error", "empty", "keep"] = "error"


class Retention(Section, frozen=True):
    """How long finished notifications and malformed intents are kept."""

    record_seconds: float = 30 * 86400.0
    malformed_seconds: float = 90 * 86400.0
    interval_seconds: float = 3600.0
    batch: int = 500


class MetricSettings(Section, frozen=True):
    """Where metrics go beside the OTEL_* variables."""

    stdout: bool = False


class Log(Section, frozen=True):
    """What is written to stdout."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "pretty"] = "auto"


class Drill(Section, frozen=True):
    """For tests and drills; refused when ENV=production."""

    time_scale: float = 1.0
    """Every wait between attempts is multiplied by this."""


class Tenant(Section, frozen=True):
    """What one tenant has of its own."""

    default_locale: str | None = None


class RetryTable(Section, frozen=True):
    """One retry policy as it is written: flat, in seconds; the documents' own names are aliases (see ALIASES)."""

    max_attempts: int | None = None
    max_retries: int | None = None
    base_delay_seconds: float = 5.0
    backoff_factor: float = 2.0
    max_delay_seconds: float = 600.0
    jitter: Literal["none", "additive", "proportional", "full"] = "additive"
    jitter_seconds: float = 1.0
    first_exponent: int = 0
    timeout_seconds: float = 20.0
    failover_after_attempts: int | Literal["max"] = 2
    on_refused: Literal["bury", "fail_over"] = "fail_over"
    on_unknown: Literal["retry", "fail_over", "wait_for_receipt", "bury"] = "retry"
    on_open: Literal["defer", "bury"] = "defer"
    receipt_wait_seconds: float = 300.0
    throttled_counts: bool = False
    retry_after_cap_seconds: float = 3600.0
    give_up_after_seconds: float = 259_200.0

    def policy(self, name: str) -> RetryPolicy:
        """The policy the engine decides by."""
        if (self.max_attempts is None) == (self.max_retries is None):
            raise ConfigurationError(f'policy.retry."{name}": say either max_attempts or max_retries')
        retries = self.max_retries is not None
        budget = self.max_retries if self.max_retries is not None else self.max_attempts
        if budget is None or budget < (0 if retries else 1):
            raise ConfigurationError(f'policy.retry."{name}": the budget must allow at least one attempt')
        waits = (self.base_delay_seconds, self.max_delay_seconds, self.jitter_seconds)
        if not (self.timeout_seconds > 0 and self.backoff_factor >= 1 and all(wait >= 0 for wait in waits)):  # NaN too
            raise ConfigurationError(f'policy.retry."{name}": times must be positive and backoff_factor at least 1')
        return RetryPolicy(
            backoff=Backoff(
                base=self.base_delay_seconds,
                factor=self.backoff_factor,
                cap=self.max_delay_seconds,
                jitter=self.jitter,
                jitter_max=self.jitter_seconds,
                first_exponent=self.first_exponent,
            ),
            budget=budget,
            counts="retries" if retries else "attempts",
            timeout_seconds=self.timeout_seconds,
            failover_after_attempts=None if self.failover_after_attempts == "max" else self.failover_after_attempts,
            on_refused=self.on_refused,
            on_unknown=self.on_unknown,
            on_open=self.on_open,
            receipt_wait_seconds=self.receipt_wait_seconds,
            throttled_counts=self.throttled_counts,
            retry_after_cap_seconds=self.retry_after_cap_seconds,
            give_up_after_seconds=self.give_up_after_seconds,
        )


class Policies(Section, frozen=True):
    """Retry policies by `origin/channel`, breaker policies by provider; `*` is everybody else."""

    retry: dict[str, RetryTable] = msgspec.field(default_factory=lambda: {"*/*": RetryTable(max_attempts=6)})
    breaker: dict[str, BreakerPolicy] = msgspec.field(default_factory=lambda: {"*": BreakerPolicy()})


class Settings(Section, frozen=True):
    """One complete configuration."""

    blueprint: str
    service: str = "carillon"
    allow_sandbox: bool = False
    http: Http = Http()
    ledger: Ledger = Ledger()
    redis: Redis = Redis()
    auth: Auth = Auth()
    work: Work = Work()
    channels: dict[str, list[str]] = {}
    providers: dict[str, dict[str, Any]] = {}
    lanes: dict[str, Lane] = {}
    policy: Policies = Policies()
    locale: LocaleSettings = LocaleSettings()
    tenant: dict[str, Tenant] = {}
    templates: TemplateSettings = TemplateSettings()
    retention: Retention = Retention()
    log: Log = Log()
    metrics: MetricSettings = MetricSettings()
    drill: Drill = Drill()
    idempotency_ttl_seconds: float = 30 * 86400.0
