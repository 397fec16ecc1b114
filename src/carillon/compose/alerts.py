"""Alerts about dead letters, and the places that are told: a stream, the log, a webhook, a queue."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Finding, Part
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.config.settings import Settings
from carillon.domain.alerts import AlertOutbox
from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Observer
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, header_id
from carillon.providers.secret import Secret
from carillon.providers.webhook.signing import SigningKey, sign_standard
from carillon.upkeep.alerts import AlertRelay, AlertSink, RelayRules
from carillon.upkeep.health import Check, answers_at, degraded

if TYPE_CHECKING:
    from carillon.upkeep.alert_sinks import Post, Sign

_SINK_SECONDS = 4.0
"""Before the relay's own patience ends, so that the reason is the sink's."""


class AlertsPart(Part):
    """Every process sees what was given up; the one with upkeep tells it."""

    title = "Alerts"

    def __init__(self, process: Process, ledger: LedgerPart, providers: ProvidersPart) -> None:
        self._process = process
        self._ledger = ledger
        self._providers = providers
        self.relay: AlertRelay | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        self.relay = relay(self._process, self._ledger.ledger, self._providers.tools.http, stack)

    def observers(self) -> Sequence[Observer]:
        return () if self.relay is None else (self.relay,)

    def checks(self) -> Mapping[str, Check]:
        # Alerts wait in the ledger until the sink is back.
        return {f"alerts_{name}": degraded(answers_at(url)) for name, url in _places(self._process.settings).items()}

    async def examine(self) -> list[Finding]:
        for name, url in _places(self._process.settings).items():
            try:
                await answers_at(url)()
            except OSError as error:
                return [Finding("Alerts", "ill", f"{name}: {error.strerror or error}")]
        names = chosen(self._process.settings)
        return [Finding("Alerts", "ok", ", ".join(names))] if names else []


def _places(settings: Settings) -> dict[str, str]:
    """The servers that only alerts use."""
    urls = {"webhook": settings.alerts.webhook_url, "rabbitmq": settings.alerts.rabbitmq_url}
    return {name: url for name in chosen(settings) if (url := urls.get(name)) is not None}


def chosen(settings: Settings) -> list[str]:
    """The sinks by name, each once; `auto` is Redis where there is one, the log elsewhere."""
    by_itself = "log" if settings.redis.location() is None else "redis"
    return list(dict.fromkeys(by_itself if name == "auto" else name for name in settings.alerts.sinks))


def relay(process: Process, outbox: AlertOutbox, http: HttpClient, stack: AsyncExitStack) -> AlertRelay | None:
    """None where nobody wants to be told."""
    names = chosen(process.settings)
    if not names:
        return None
    sinks = [_sink(name, process, http) for name in names]
    for sink in sinks:
        stack.push_async_callback(sink.aclose)
    rules = RelayRules(poll_seconds=process.settings.alerts.poll_seconds)
    return AlertRelay(outbox, sinks, chains=process.chains, clock=process.clock, observer=process.observe, rules=rules)


def _sink(name: str, process: Process, http: HttpClient) -> AlertSink:
    # Imported here: most processes tell nobody, and the clients are slow to load.
    from carillon.upkeep.alert_sinks import LogAlerts, WebhookAlerts  # noqa: PLC0415 - see above

    match name:
        case "log":
            return LogAlerts()
        case "redis":
            return _redis(process.settings)
        case "webhook":
            return WebhookAlerts(_post(process.settings, http), _sign(process), process.settings.service)
        case _:
            return _rabbitmq(process.settings)


def _redis(settings: Settings) -> AlertSink:
    from redis.asyncio import Redis  # noqa: PLC0415 - see _sink
    from redis.asyncio.retry import Retry  # noqa: PLC0415 - see _sink
    from redis.backoff import NoBackoff  # noqa: PLC0415 - see _sink

    from carillon.upkeep.alert_sinks import RedisAlerts  # noqa: PLC0415 - see _sink

    url = settings.redis.location()
    if url is None:
        raise ConfigurationError('alerts.sinks: "redis" needs redis.url')
    seconds = min(settings.redis.operation_timeout_seconds, _SINK_SECONDS)
    # A call that may have been carried out is never repeated behind our back.
    redis = Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0))
    return RedisAlerts(redis, settings.alerts.name)


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
        raise ConfigurationError('alerts.rabbitmq_url: alerts.sinks names "rabbitmq"')
    try:
        from carillon.upkeep.alert_rabbitmq import RabbitAlerts  # noqa: PLC0415 - see _sink
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"alerts.sinks: \"rabbitmq\" needs the package {error.name!r}; pip install 'carillon[rabbitmq]'"
        ) from None
    return RabbitAlerts(settings.alerts.rabbitmq_url, settings.alerts.name)
