"""Refuses settings that cannot work, alone or together."""

import re
from collections.abc import Mapping

from carillon.config.policies import check_queues
from carillon.config.sections import Section
from carillon.config.settings import GroupSettings, Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.groups import GROUPED_BY, endpoint_name
from carillon.domain.pace import check_rate
from carillon.domain.people import is_off_day

CALL_SHARE = 0.9
"""A call must be shorter than this share of its lease."""
OFFLINE = ("hold", "fail")
_EMAIL = re.compile(
    r"[^@\s,;<>\"\x00-\x1f\x7f]{1,64}@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")
_PAGE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]{1,255}(?:/[\x21\x23-\x25\x28-\x3b\x3d\x3f-\x7e]*)?")
_CALENDAR = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_LONGEST_EMAIL = 254
_MOST_WEIGHT = 1000
_ENDPOINT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+):[0-9]{1,5}")
_WITH_ENDPOINTS = "webhook"
"""The kind of provider that calls endpoints of others."""
LIVE = "sse"
"""The kind of live streams, and the name of the provider of this kind."""
_TEMPLATE_SERVICE = "template_service"
"""It has a breaker and is no provider."""


def check(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for the first setting that cannot work; the error names it."""
    if environ.get("ENV") == "production":
        if settings.drill.time_scale != 1.0:
            raise ConfigurationError("drill.time_scale: time scaling is refused when ENV=production")
        if environ.get("CARILLON_FAULTPOINTS"):
            raise ConfigurationError("CARILLON_FAULTPOINTS is refused when ENV=production")
    _check_bounds(settings)
    _check_policies(settings)
    _check_lanes(settings)
    _check_groups(settings)
    check_queues(settings.queue, settings.beat)
    _check_addresses(settings)
    _check_neighbours(settings)
    _check_picker(settings)
    _check_redis(settings)
    _check_pages(settings)
    _check_holidays(settings)
    if settings.templates.strict and not settings.locale.supported:
        raise ConfigurationError("templates.strict: name the locales under locale.supported")
    for channel, providers in settings.channels.items():
        for provider in providers:
            if provider not in settings.providers:
                raise ConfigurationError(f"channels.{channel}: there is no [providers.{provider}]")
            if settings.providers[provider].get("kind") == LIVE != provider:
                said = f"the ledger and pickers find what waits for people by its provider's name: call it {LIVE}"
                raise ConfigurationError(f"providers.{provider}: {said}")


def _check_redis(settings: Settings) -> None:
    """What works over keys of many slots at once cannot be in a Redis Cluster."""
    if settings.redis.cluster and settings.redis.url is None:
        raise ConfigurationError("redis.cluster: name one node of the Redis Cluster with redis.url")
    if not settings.redis.cluster:
        return
    kinds = {"idempotency marks": settings.push, "queues": settings.billing, "streams": settings.stream}
    for kept, there in kinds.items():
        if there is not None:
            raise ConfigurationError(
                f"redis.cluster: the {kept} of this blueprint need a Redis without cluster mode, also under Sentinel"
            )


def _check_picker(settings: Settings) -> None:
    if settings.task_picker is not None and settings.task_picker.offline_policy not in OFFLINE:
        raise ConfigurationError("task_picker.offline_policy: write hold or fail")


def _check_pages(settings: Settings) -> None:
    pages = {f"tenant.{name}.page": tenant.page for name, tenant in settings.tenant.items() if tenant.page is not None}
    for place, page in {"consent.page": settings.consent.page, **pages}.items():
        for field in ("accent", "accent_dark"):
            if not _COLOUR.fullmatch(getattr(page, field)):
                raise ConfigurationError(f"{place}.{field}: write a colour as #rrggbb")
        for field in ("logo", "home"):
            url = getattr(page, field)
            if url is not None and not _PAGE_URL.fullmatch(url):
                raise ConfigurationError(f"{place}.{field}: write a URL that begins with https://")
    if settings.consent.url is not None and not _PAGE_URL.fullmatch(settings.consent.url):
        raise ConfigurationError("consent.url: write the public URL of this program, such as https://example.org")


def _check_holidays(settings: Settings) -> None:
    for name, days in settings.preferences.holidays.items():
        if not _CALENDAR.fullmatch(name):
            raise ConfigurationError(f'preferences.holidays."{name}": write a name such as DE or de-BY')
        for day in days:
            if not is_off_day(day):
                raise ConfigurationError(f'preferences.holidays.{name}: "{day}" is no day such as 12-25 or 2027-03-26')


def _check_bounds(settings: Settings) -> None:
    for name in settings.__struct_fields__:
        section = getattr(settings, name)
        if isinstance(section, Section):
            for field, (least, most) in section.bounds.items():
                _check_range(f"{name}.{field}", getattr(section, field), least, most)
    if settings.push is not None:
        _check_range("push.takeover_after", settings.push.takeover_after, 0.001, settings.push.mark_seconds)
    if settings.task_picker is not None:
        for priority, seconds in settings.task_picker.poll_intervals.items():
            _check_range(f"task_picker.poll_intervals.{priority}", seconds, 0.001, 3600)


def _check_range(path: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigurationError(f"{path}: {value} is not between {least:g} and {most:g}")


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
                raise ConfigurationError(f'admin_emails."{kind}": {address!r} is not an email address')


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
    _check_names(settings)
    for name, rate in settings.policy.rate.items():
        rate.checked(f'policy.rate."{name}"')
    for name, tenant in settings.tenant.items():
        check_rate(f'tenant."{name}".requests_per_second', tenant.requests_per_second)
    for name, breaker in settings.policy.breaker.items():
        # A breaker without a probe would never close again.
        if min(breaker.failure_threshold, breaker.success_threshold, breaker.half_open_max_probes) < 1:
            raise ConfigurationError(f'policy.breaker."{name}": thresholds and probes must be at least 1')
        breaker.checked(f'policy.breaker."{name}"')


def _check_names(settings: Settings) -> None:
    """Refuse limits of a provider that does not exist: they would limit nothing, and nobody would say so."""
    names = {name.lower() for name in settings.providers} | {"*"}
    for name in settings.policy.rate:
        if name.lower() not in names:
            raise ConfigurationError(f'policy.rate."{name}": there is no [providers.{name}]')
    kinds = {name.lower(): str(options.get("kind")) for name, options in settings.providers.items()}
    for name, rate in settings.policy.rate.items():
        if rate.endpoint_per_second is not None and kinds.get(name.lower(), _WITH_ENDPOINTS) != _WITH_ENDPOINTS:
            raise ConfigurationError(f'policy.rate."{name}".endpoint_per_second: {name} calls no endpoints of others')
    for name in settings.policy.breaker:
        if name.lower() not in names | {_TEMPLATE_SERVICE}:
            raise ConfigurationError(f'policy.breaker."{name}": there is no [providers.{name}]')
    for name, calls in settings.work.max_in_flight.items():
        if name not in settings.providers:
            raise ConfigurationError(f"work.max_in_flight.{name}: there is no [providers.{name}]")
        if calls < 1:
            raise ConfigurationError(f"work.max_in_flight.{name}: must be at least 1")


def _check_lanes(settings: Settings) -> None:
    for name, lane in settings.lanes.items():
        if lane.weight < 1:
            raise ConfigurationError(f"lanes.{name}.weight: must be at least 1")
        if lane.max_attempts is not None and lane.max_attempts < 1:
            raise ConfigurationError(f"lanes.{name}.max_attempts: must be at least 1")
        if lane.timeout_seconds is not None and not lane.timeout_seconds > 0:  # NaN too
            raise ConfigurationError(f"lanes.{name}.timeout_seconds: must be more than 0")


def _check_groups(settings: Settings) -> None:
    for provider, groups in settings.groups.items():
        if provider not in settings.providers:
            raise ConfigurationError(f"groups.{provider}: there is no [providers.{provider}]")
        if settings.push is not None:
            raise ConfigurationError(
                f"groups.{provider}: a push worker takes messages as its queue has them; push.prefetch limits its calls"
            )
        if groups.cap is not None and groups.cap < 1:
            raise ConfigurationError(f"groups.{provider}.cap: must be at least 1")
        for name, member in groups.members.items():
            path = f'groups.{provider}.members."{name}"'
            if not 1 <= member.weight <= _MOST_WEIGHT:
                raise ConfigurationError(f"{path}.weight: {member.weight} is not between 1 and {_MOST_WEIGHT}")
            if member.cap is not None and member.cap < 1:
                raise ConfigurationError(f"{path}.cap: must be at least 1")
        _check_members(settings, provider, groups)


def _check_members(settings: Settings, provider: str, groups: GroupSettings) -> None:
    """Refuse members that would never be found under the name that they have."""
    by = groups.by or GROUPED_BY.get(str(settings.providers[provider].get("kind")), "tenant")
    seen: dict[tuple[str | None, str], str] = {}
    for name, member in groups.members.items():
        path = f'groups.{provider}.members."{name}"'
        if by in ("person", "none"):
            raise ConfigurationError(f"{path}: only tenants and endpoints have rules of their own")
        if by == "tenant" and member.tenant is not None:
            raise ConfigurationError(f"{path}.tenant: the groups of {provider} are tenants, and the name is the tenant")
        if by == "tenant" and not name:
            raise ConfigurationError(f"{path}: write the name of a tenant")
        if by == "endpoint" and not _ENDPOINT.fullmatch(name):
            raise ConfigurationError(f"{path}: write the endpoint as host:port, such as hooks.example.org:443")
        same = (member.tenant, endpoint_name(f"//{name}") if by == "endpoint" else name)
        if same in seen:
            raise ConfigurationError(f'{path}: is the same group as members."{seen[same]}"')
        seen[same] = name
