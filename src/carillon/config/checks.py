"""Settings that each make sense and do not go together, or cannot work at all."""

import re
from collections.abc import Mapping

from carillon.config import queues as settings_queues
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError

CALL_SHARE = 0.9
"""A call must be shorter than this share of its lease."""
OFFLINE = ("hold", "fail")
_EMAIL = re.compile(
    r"[^@\s,;<>\"\x00-\x1f\x7f]{1,64}@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_LONGEST_EMAIL = 254


def check(settings: Settings, environ: Mapping[str, str]) -> None:
    """Stop at the first setting that cannot work, by its name."""
    if environ.get("ENV") == "production":
        if settings.drill.time_scale != 1.0:
            raise ConfigurationError("drill.time_scale: time scaling is refused when ENV=production")
        if environ.get("CARILLON_FAULTPOINTS"):
            raise ConfigurationError("CARILLON_FAULTPOINTS is refused when ENV=production")
    ranges = (
        *_engine_ranges(settings),
        *_neighbour_ranges(settings),
        *_billing_ranges(settings),
        *_sse_ranges(settings),
    )
    for path, value, least, most in ranges:
        if not least <= value <= most:
            raise ConfigurationError(f"{path}: {value} is not between {least:g} and {most:g}")
    _check_policies(settings)
    _check_lanes(settings)
    settings_queues.checked(settings.queue, settings.beat)
    _check_addresses(settings)
    _check_neighbours(settings)
    _check_picker(settings)
    if settings.templates.strict and not settings.locale.supported:
        raise ConfigurationError("templates.strict: say which locales there are, under locale.supported")
    for channel, providers in settings.channels.items():
        for provider in providers:
            if provider not in settings.providers:
                raise ConfigurationError(f"channels.{channel}: there is no [providers.{provider}]")


def _check_picker(settings: Settings) -> None:
    if settings.task_picker is not None and settings.task_picker.offline_policy not in OFFLINE:
        raise ConfigurationError("task_picker.offline_policy: say hold or fail")


Range = tuple[str, float, float, float]


def _engine_ranges(settings: Settings) -> list[Range]:
    http, work = settings.http, settings.work
    return [
        ("drill.time_scale", settings.drill.time_scale, 1e-6, 1e6),
        ("ledger.lease_seconds", settings.ledger.lease_seconds, 0.05, 86_400),
        ("ledger.operation_timeout_seconds", settings.ledger.operation_timeout_seconds, 0.001, 3600),
        ("work.concurrency", work.concurrency, 1, 100_000),
        ("work.batch", work.batch, 1, 10_000),
        ("work.poll_seconds", work.poll_seconds, 0.001, 3600),
        ("alerts.poll_seconds", settings.alerts.poll_seconds, 0.001, 3600),
        ("history.keep_days", settings.history.keep_days, 1, 36_500),
        ("history.batch", settings.history.batch, 1, 100_000),
        ("history.poll_seconds", settings.history.poll_seconds, 0.001, 3600),
        ("history.lag_seconds", settings.history.lag_seconds, 0, 3600),
        ("history.timeout_seconds", settings.history.timeout_seconds, 0.001, 600),
        ("http.max_body_bytes", http.max_body_bytes, 1024, 64 * 1024 * 1024),
        ("http.port", http.port, 0, 65_535),
        ("http.header_timeout_seconds", http.header_timeout_seconds, 0.001, 86_400),
        ("http.read_timeout_seconds", http.read_timeout_seconds, 0.001, 86_400),
        ("http.idle_timeout_seconds", http.idle_timeout_seconds, 0.001, 86_400),
    ]


def _neighbour_ranges(settings: Settings) -> list[Range]:
    redis, stream, directory = settings.redis, settings.stream, settings.directory
    found: list[Range] = [
        ("redis.db", redis.db, 0, 1_000_000),
        ("redis.operation_timeout_seconds", redis.operation_timeout_seconds, 0.001, 3600),
        # AMQP carries it in 16 bits, and 0 would mean no bound at all.
        ("rabbitmq_door.prefetch", settings.rabbitmq_door.prefetch, 1, 65_535),
        ("kafka.session_timeout_ms", settings.kafka.session_timeout_ms, 1000, 3_600_000),
        ("kafka.batch", settings.kafka.batch, 1, 10_000),
    ]
    if stream is not None:
        found.append(("stream.block_seconds", stream.block_seconds, 0.001, 3600))
        found.append(("stream.batch", stream.batch, 1, 10_000))
    if settings.push is not None:
        push = settings.push
        found += [
            ("push.takeover_after", push.takeover_after, 0.001, push.mark_seconds),
            ("push.mark_seconds", push.mark_seconds, 1, 365 * 86_400),
            ("push.requeue_pause_seconds", push.requeue_pause_seconds, 0.001, 3600),
            ("push.half_open_wait_seconds", push.half_open_wait_seconds, 0, 3600),
            ("push.template_timeout_seconds", push.template_timeout_seconds, 0.001, 3600),
            ("push.template_cache_seconds", push.template_cache_seconds, 0, 86_400),
            # It is the prefetch as well, which AMQP carries in 16 bits.
            ("work.concurrency", settings.work.concurrency, 1, 65_535),
        ]
    if settings.task_picker is not None:
        picker = settings.task_picker
        found.append(("task_picker.lease_cleanup_interval", picker.lease_cleanup_interval, 0.01, 86_400))
        found += [
            (f"task_picker.poll_intervals.{name}", pace, 0.001, 3600) for name, pace in picker.poll_intervals.items()
        ]
    if directory is not None:
        found.append(("directory.timeout_seconds", directory.timeout_seconds, 0.001, 3600))
        found.append(("directory.concurrency", directory.concurrency, 1, 10_000))
    return found


def _sse_ranges(settings: Settings) -> list[Range]:
    sse = settings.sse
    if sse is None:
        return []
    return [
        ("sse.max_connections", sse.max_connections, 0, 1_000_000),
        ("sse.max_per_key", sse.max_per_key, 1, 1_000_000),
        ("sse.buffer", sse.buffer, 1, 100_000),
        ("sse.heartbeat_seconds", sse.heartbeat_seconds, 0.05, 3600),
        ("sse.write_seconds", sse.write_seconds, 0.05, 3600),
        ("sse.lifetime_seconds", sse.lifetime_seconds, 0.1, 365 * 86_400),
        ("sse.recheck_seconds", sse.recheck_seconds, 0.05, 3600),
        ("sse.retry_ms", sse.retry_ms, 0, 3_600_000),
        ("sse.ticket_seconds", sse.ticket_seconds, 1, 3600),
        ("sse.presence_seconds", sse.presence_seconds, 0.5, 3600),
    ]


def _billing_ranges(settings: Settings) -> list[Range]:
    billing = settings.billing
    if billing is None:
        return []
    return [
        ("billing.tolerance_seconds", billing.tolerance_seconds, 1, 86_400),
        ("billing.webhook_timeout_seconds", billing.webhook_timeout_seconds, 0.001, 3600),
        ("billing.immediate_timeout_seconds", billing.immediate_timeout_seconds, 0.001, 3600),
        ("billing.payment_timeout_seconds", billing.payment_timeout_seconds, 0.001, 3600),
        ("billing.outbox_poll_seconds", billing.outbox_poll_seconds, 0.001, 3600),
        ("gateway.delay_seconds", settings.gateway.delay_seconds, 0, 3600),
    ]


def _check_neighbours(settings: Settings) -> None:
    billing = settings.billing
    urls = {} if billing is None else {"subscription": billing.subscription_url, "payment": billing.payment_url}
    for name, url in urls.items():
        if url and not re.match(r"https?://[^/\s]", url):
            raise ConfigurationError(f"billing.{name}_url: must begin with http:// or https://")


def _check_addresses(settings: Settings) -> None:
    if settings.directory is not None and not re.match(r"https?://[^/\s]", settings.directory.url):
        raise ConfigurationError("directory.url: must begin with http:// or https://")
    if settings.push is not None:
        if not re.match(r"amqps?://[^/\s]", settings.push.rabbitmq_url):
            raise ConfigurationError("push.rabbitmq_url: must begin with amqp:// or amqps://")
        if not re.match(r"https?://[^/\s]", settings.push.template_service_url):
            raise ConfigurationError("push.template_service_url: must begin with http:// or https://")
    for kind, held in settings.admin_emails.items():
        for address in held:
            if len(address) > _LONGEST_EMAIL or not _EMAIL.fullmatch(address):
                raise ConfigurationError(f'admin_emails."{kind}": {address!r} is no email address')


def _check_policies(settings: Settings) -> None:
    if "*/*" not in settings.policy.retry or not settings.policy.retry["*/*"].enabled:
        raise ConfigurationError('policy.retry."*/*": the default policy is missing')
    lease = settings.ledger.lease_seconds
    for name, policy in settings.policy.retry.items():
        policy.checked(name)
        seconds = policy.timeout_seconds
        # A delivery of the task picker may outlive its lease: the worker renews the lease while the call runs.
        if seconds >= lease * CALL_SHARE and settings.task_picker is None:
            raise ConfigurationError(
                f'policy.retry."{name}".timeout_seconds: a call ({seconds:g} s) must be shorter than nine tenths of '
                f"ledger.lease_seconds ({lease:g} s)"
            )
    for name, breaker in settings.policy.breaker.items():
        # A breaker without a probe would never close again.
        if min(breaker.failure_threshold, breaker.success_threshold, breaker.half_open_max_probes) < 1:
            raise ConfigurationError(f'policy.breaker."{name}": thresholds and probes must be at least 1')


def _check_lanes(settings: Settings) -> None:
    for name, lane in settings.lanes.items():
        if lane.weight < 1:
            raise ConfigurationError(f"lanes.{name}.weight: must be at least 1")
        if lane.max_attempts is not None and lane.max_attempts < 1:
            raise ConfigurationError(f"lanes.{name}.max_attempts: must be at least 1")
        if lane.timeout_seconds is not None and not lane.timeout_seconds > 0:  # NaN too
            raise ConfigurationError(f"lanes.{name}.timeout_seconds: must be more than 0")
