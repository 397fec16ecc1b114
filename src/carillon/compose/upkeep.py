"""Upkeep of a process: the loops that clean up, alerts to operators, and history."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from carillon.compose import from_settings, outbound, receipts
from carillon.compose.erasure import kept_at, places_beside
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import DoctorFinding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.config.sections import servicebus_address
from carillon.config.settings import Settings
from carillon.domain.alerts import AlertOutbox
from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Observer
from carillon.ledger.opening import Ledger
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, header_id
from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import SigningKey, sign_standard
from carillon.system import new_id
from carillon.upkeep.alerts import AlertRelay, AlertSink, LogAlerts, RedisAlerts, RelayRules, WebhookAlerts
from carillon.upkeep.cleanup import LeaseCleanup, LostTickets, Retention, RetentionRules
from carillon.upkeep.consent.rights import UnfinishedErasures
from carillon.upkeep.health import Check, answers_at, degraded
from carillon.upkeep.history.copier import History, HistoryRules

if TYPE_CHECKING:
    from carillon.upkeep.alerts import Post, Sign

_SINK_SECONDS = 4.0
"""Shorter than the relay's own timeout, so that the error names the sink."""


def _copier(process: Process, ledger: Ledger) -> History | None:
    """The loop that copies history; None without `history.url`."""
    wanted = process.settings.history
    if wanted.url is None:
        return None
    rules = HistoryRules(
        batch=wanted.batch,
        poll_seconds=wanted.poll_seconds,
        lag_seconds=wanted.lag_seconds,
        lease_seconds=2 * wanted.timeout_seconds,
    )
    owner = f"{process.owner}/{new_id()}"
    archive = kept_at(process.settings)
    return History(ledger, archive, owner=owner, clock=process.clock, observer=process.observe, rules=rules)


class AlertsPart(Part):
    """Every process records dead letters; the one with upkeep sends the alerts."""

    title = "Alerts"

    def __init__(self, process: Process, ledger: LedgerPart, providers: ProvidersPart) -> None:
        self._process = process
        self._ledger = ledger
        self._providers = providers
        self.relay: AlertRelay | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        self.relay = alert_relay(self._process, self._ledger.ledger, self._providers.tools.http, stack)

    def observers(self) -> Sequence[Observer]:
        return () if self.relay is None else (self.relay,)

    def checks(self) -> Mapping[str, Check]:
        # Alerts wait in the ledger until the sink is back.
        return {f"alerts_{name}": degraded(answers_at(url)) for name, url in _places(self._process.settings).items()}

    async def examine(self) -> list[DoctorFinding]:
        for name, url in _places(self._process.settings).items():
            try:
                await answers_at(url)()
            except OSError as error:
                return [DoctorFinding("Alerts", "ill", f"{name}: {error.strerror or error}")]
        names = chosen_sinks(self._process.settings)
        return [DoctorFinding("Alerts", "ok", ", ".join(names))] if names else []


def _places(settings: Settings) -> dict[str, str]:
    """The servers that only alerts use."""
    alerts = settings.alerts
    bus = servicebus_address(alerts.servicebus_connection_string)
    urls = {"webhook": alerts.webhook_url, "rabbitmq": alerts.rabbitmq_url, "servicebus": bus}
    return {name: url for name in chosen_sinks(settings) if (url := urls.get(name)) is not None}


def chosen_sinks(settings: Settings) -> list[str]:
    """The sinks by name, each once; `auto` is Redis where there is one, the log elsewhere."""
    by_itself = "log" if settings.redis.location() is None else "redis"
    return list(dict.fromkeys(by_itself if name == "auto" else name for name in settings.alerts.sinks))


def alert_relay(process: Process, outbox: AlertOutbox, http: HttpClient, stack: AsyncExitStack) -> AlertRelay | None:
    """The relay of alerts; None without sinks."""
    names = chosen_sinks(process.settings)
    if not names:
        return None
    sinks = [_sink(name, process, http) for name in names]
    for sink in sinks:
        stack.push_async_callback(sink.aclose)
    rules = RelayRules(poll_seconds=process.settings.alerts.poll_seconds)
    return AlertRelay(outbox, sinks, chains=process.chains, clock=process.clock, observer=process.observe, rules=rules)


def _sink(name: str, process: Process, http: HttpClient) -> AlertSink:
    match name:
        case "log":
            return LogAlerts()
        case "redis":
            return _redis(process.settings)
        case "webhook":
            return WebhookAlerts(_post(process.settings, http), _sign(process), process.settings.service)
        case "servicebus":
            return _servicebus(process.settings)
        case _:
            return _rabbitmq(process.settings)


def _redis(settings: Settings) -> AlertSink:
    from redis.asyncio import Redis  # noqa: PLC0415 - slow to load, and few processes alert
    from redis.asyncio.retry import Retry  # noqa: PLC0415 - slow to load, and few processes alert
    from redis.backoff import NoBackoff  # noqa: PLC0415 - slow to load, and few processes alert

    from carillon.compose.redis_resets import outliving_resets  # noqa: PLC0415 - slow to load, and few processes alert
    from carillon.compose.redis_topology import cluster_client  # noqa: PLC0415 - slow to load, and few processes alert

    url = settings.redis.location()
    if url is None:
        raise ConfigurationError('alerts.sinks: "redis" needs redis.url')
    seconds = min(settings.redis.operation_timeout_seconds, _SINK_SECONDS)
    # The client must not repeat a call that Redis may have carried out.
    if settings.redis.cluster:
        return RedisAlerts(cluster_client(url, 1, seconds), settings.alerts.name)
    redis = Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0))
    return RedisAlerts(outliving_resets(redis), settings.alerts.name)


def _post(settings: Settings, http: HttpClient) -> "Post":
    url = settings.alerts.webhook_url
    if url is None:
        raise ConfigurationError('alerts.webhook_url: alerts.sinks names "webhook"')

    async def post(body: bytes, headers: Mapping[str, str]) -> str | None:
        sent = {"Content-Type": "application/json", "User-Agent": "Carillon", **headers}
        answer = await http.post(HttpRequest(url=url, body=body, headers=sent, timeout_seconds=_SINK_SECONDS))
        if not isinstance(answer, HttpAnswer):
            return answer.error
        return None if answer.ok else f"HTTP {answer.status} {answer.excerpt()}".strip()

    return post


def _sign(process: Process) -> "Sign":
    secrets = process.settings.alerts.webhook_secrets
    if not secrets:
        raise ConfigurationError("alerts.webhook_secrets: name at least one secret to sign with")
    try:
        keys = [SigningKey(Secret(secret)) for secret in secrets]
    except ValueError as error:
        raise ConfigurationError(f"alerts.webhook_secrets: {error}") from None

    def sign(message: str, body: bytes) -> Mapping[str, str]:
        name, stamp = header_id(message), int(process.clock.wall())
        return {
            "webhook-id": name,
            "webhook-timestamp": str(stamp),
            "webhook-signature": sign_standard(keys, name, stamp, body),
        }

    return sign


def _rabbitmq(settings: Settings) -> AlertSink:
    if settings.alerts.rabbitmq_url is None:
        raise ConfigurationError('alerts.rabbitmq_url: alerts.sinks names "rabbitmq"; set its broker (RABBITMQ_URL)')
    try:
        from carillon.upkeep.alert_rabbitmq import RabbitAlerts  # noqa: PLC0415 - slow to load, and few processes alert
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"alerts.sinks: \"rabbitmq\" needs the package {error.name!r}; pip install 'carillon[rabbitmq]'"
        ) from None
    return RabbitAlerts(settings.alerts.rabbitmq_url, settings.alerts.name)


def _servicebus(settings: Settings) -> AlertSink:
    connection_string = settings.alerts.servicebus_connection_string
    if not connection_string:
        raise ConfigurationError(
            'alerts.servicebus_connection_string: alerts.sinks names "servicebus"; set SERVICEBUS_CONNECTION_STRING'
        )
    try:
        from carillon import servicebus  # noqa: PLC0415 - slow to load, and few processes alert
        from carillon.upkeep.alert_servicebus import ServiceBusAlerts  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"alerts.sinks: \"servicebus\" needs the package {error.name!r}; pip install 'carillon[servicebus]'"
        ) from None
    servicebus.checked("alerts.servicebus_connection_string", connection_string)
    return ServiceBusAlerts(connection_string, settings.alerts.name)


class UpkeepPart(Part):
    """Retention, abandoned deliveries, early receipts, expired leases, lost tickets, and alerts."""

    role = Role.UPKEEP

    def __init__(self, process: Process, ledger: LedgerPart, alerts: AlertsPart) -> None:
        self._process = process
        self._ledger = ledger
        self._alerts = alerts

    def run(self) -> Mapping[str, Loop]:
        process, ledger = self._process, self._ledger.ledger
        process.tell_started("retention_worker")
        loops: dict[str, Any] = {
            "retention": Retention(ledger, process.observe, process.clock, retention_rules(process.settings)),
            "abandoned": outbound.abandoned(process, ledger),
            "receipts": receipts.waiting(process, ledger),
            "overdue receipts": receipts.overdue(process, ledger),
            "lease reset": _lease_cleanup(process, ledger),
            "tickets": LostTickets(ledger, process.observe, process.clock, process.settings.ledger.lease_seconds),
            "alerts": self._alerts.relay,
            "erasures": UnfinishedErasures(ledger, places_beside(process.settings), process.clock, process.observe),
        }
        return {name: loop.run for name, loop in loops.items() if loop is not None}


class HistoryPart(Part):
    """Copies finished notifications into ClickHouse, if the settings name one."""

    title = "History"
    role = Role.UPKEEP

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    def run(self) -> Mapping[str, Loop]:
        kept = _copier(self._process, self._ledger.ledger)
        return {} if kept is None else {"history": kept.run}

    def checks(self) -> Mapping[str, Check]:
        settings = self._process.settings
        if settings.history.url is None or settings.history.url.startswith("chdb"):
            return {}
        archive = kept_at(settings)

        async def ask() -> dict[str, Any]:
            return {"version": await archive.version()}

        return {"history": degraded(ask)}

    async def examine(self) -> list[DoctorFinding]:
        settings = self._process.settings
        if settings.history.url is None:
            return []
        return [DoctorFinding("History", "ok", f"ClickHouse {await kept_at(settings).version()}")]


def retention_rules(settings: Settings) -> RetentionRules:
    """How long this process keeps rows."""
    kept = settings.retention
    return RetentionRules(
        interval_seconds=kept.interval_seconds,
        record_seconds=kept.record_seconds,
        malformed_seconds=kept.malformed_seconds,
        audit_seconds=kept.audit_seconds,
        throttle_seconds=from_settings.categories(settings).longest_throttle(),
        batch=kept.batch,
    )


def _lease_cleanup(process: Process, ledger: Ledger) -> LeaseCleanup | None:
    """None outside sse: workers claim expired leases again."""
    picker = process.settings.task_picker
    if picker is None:
        return None
    return LeaseCleanup(ledger, ledger.signal, process.observe, process.clock, picker.lease_cleanup_interval)
