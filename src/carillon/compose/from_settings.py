"""Rules, policies, tools and providers of the engine, each read from the settings."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from carillon.compose import messages, reports
from carillon.config.reading import variables
from carillon.config.sections import servicebus_address
from carillon.config.settings import CategorySettings, GroupSettings, Settings
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.claims import Claim
from carillon.domain.consent import Categories, Category, is_name
from carillon.domain.digests import read_throttle
from carillon.domain.errors import ConfigurationError
from carillon.domain.groups import GROUPED_BY, GroupRule, Groups, endpoint_name, group_number, tenant_number
from carillon.domain.lanes import Lanes
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import Clock, Dice, Provider
from carillon.domain.receipts import Callback
from carillon.domain.suppressions import SuppressionTerms
from carillon.domain.targets import Rates
from carillon.domain.templates import LocaleRules
from carillon.intake.plan import PlanRules
from carillon.links import Links
from carillon.providers import Tools, callback, has_receipts, load
from carillon.providers import remarks as provider_remarks
from carillon.providers.http import CALLS_PER_HOST, HttpClient
from carillon.providers.webhook.send import CONCURRENCY_PER_ENDPOINT
from carillon.web.gate import is_loopback

SANDBOX = "sandbox"
TRIAL_KEY = "a public key, for trying things out only"
NOT_OPTIONS = frozenset({"kind", "needs", reports.DEADLINE})


def chains(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Channel to its providers in the order of failover; in `local` the sandbox stands in for missing credentials."""
    stand_in = _stands_in(settings)
    found: dict[str, tuple[str, ...]] = {}
    lacking: dict[str, list[str]] = {}
    for channel, names in settings.channels.items():
        chain: list[str] = []
        for name in names:
            options = settings.providers[name]
            missing = [need for need in options.get("needs", []) if not _given(options, need)]
            if missing and not stand_in:
                lacking.setdefault(channel, []).extend(f"providers.{name}.{need}" for need in missing)
            chosen = SANDBOX if missing else name
            if chosen not in chain:
                chain.append(chosen)
        if not chain:
            raise ConfigurationError(f"channels.{channel}: names no provider")
        found[channel] = tuple(chain)
    if lacking:
        raise ConfigurationError(_needs(settings, lacking))
    return found


def _stands_in(settings: Settings) -> bool:
    """Whether the sandbox takes the place of a provider without credentials."""
    return settings.blueprint == "local" or settings.allow_sandbox


def provider_names(settings: Settings) -> list[str]:
    """Every provider that a process with these settings may call, also those whose credentials another process has."""
    named = {name for chain in settings.channels.values() for name in chain}
    return sorted(named | ({SANDBOX} if _stands_in(settings) else set()))


def _needs(settings: Settings, lacking: dict[str, list[str]]) -> str:
    """One sentence with every missing option and the variables that can fill it."""
    known = variables(settings.blueprint)

    def spelled(need: str) -> str:
        provider, _, names = need.rpartition(".")
        paths = [f"{provider}.{name.strip()}" for name in names.split("|")]
        return " or ".join(f"{path} ({known[path]})" if path in known else path for path in paths)

    said = [f"{channel} needs {', '.join(map(spelled, needs))}" for channel, needs in lacking.items()]
    return "; ".join([*said, "or let the sandbox stand in, CARILLON_ALLOW_SANDBOX=1"])


def _given(options: dict[str, Any], need: str) -> bool:
    """Whether an option has a value; `a | b` needs one of the two."""
    return any(options.get(name.strip()) for name in need.split("|"))


def providers(settings: Settings, used: set[str], tools: Tools) -> dict[str, Provider]:
    """Every provider that some channel uses."""
    built: dict[str, Provider] = {}
    for name in sorted(used):
        options = settings.providers.get(name, {"kind": SANDBOX})
        if "kind" not in options:
            raise ConfigurationError(f"providers.{name}.kind: name the kind of the provider")
        given = {option: value for option, value in options.items() if option not in NOT_OPTIONS}
        built[name] = load(name, str(options["kind"]), given, tools)
    return built


def remarks(settings: Settings) -> list[tuple[str, str]]:
    """Warnings, at the start and from the doctor, about each provider that some channel uses."""
    used = {name for chain in chains(settings).values() for name in chain} & settings.providers.keys()
    found: list[tuple[str, str]] = []
    for name in sorted(used):
        options = settings.providers[name]
        given = {option: value for option, value in options.items() if option not in NOT_OPTIONS}
        kind = str(options.get("kind"))
        found += [(name, said) for said in provider_remarks(name, kind, given)]
        if settings.push is None and has_receipts(kind) and not options.get(callback(kind).proof):
            found.append((name, _unserved(settings, name, callback(kind))))
    return found


def _unserved(settings: Settings, name: str, asked: Callback) -> str:
    variable = variables(settings.blueprint).get(f"providers.{name}.{asked.proof}")
    spelled = f"{asked.proof} ({variable})" if variable else asked.proof
    return f"{spelled} is not set: {asked.path} does not exist, because nothing could prove a report"


def tools(settings: Settings, clock: Clock, dice: Dice, **more: Any) -> Tools:  # noqa: ANN401 - fields of Tools
    """The tools of the providers; a URL from a tenant must not reach our own listener or stores."""
    own = [f"{settings.http.host}:{settings.http.port}"]
    buses = (settings.servicebus_door.connection_string, settings.alerts.servicebus_connection_string)
    brokers = (settings.rabbitmq_door.url, settings.alerts.rabbitmq_url, *map(servicebus_address, buses))
    for url in (settings.ledger.url, settings.redis.location(), *brokers):
        parts = urlsplit(url or "")
        if parts.hostname:
            own.append(parts.netloc.rpartition("@")[2])
    own += [where.strip() for where in (settings.kafka.bootstrap_servers or "").split(",") if where.strip()]
    http = HttpClient(calls_per_host=max(CALLS_PER_HOST, *settings.work.max_in_flight.values(), 0))
    return Tools(clock=clock, dice=dice, http=http, own_addresses=tuple(own), **more)


def lanes(settings: Settings) -> Lanes:
    """The lanes; refuses a rank that is used twice and a missing lane of priority, standard and bulk."""
    ranks = [lane.rank for lane in settings.lanes.values()]
    if len(set(ranks)) != len(ranks):
        raise ConfigurationError("lanes: two lanes have the same rank")
    for name in ("priority", "standard", "bulk"):
        if name not in settings.lanes:
            raise ConfigurationError(f"lanes.{name}: is missing")
    return Lanes(settings.lanes, settings.work.strict_lanes)


def suppression_terms(settings: Settings) -> SuppressionTerms:
    """How long each kind of suppression holds; 0 in the settings is for ever."""
    given = settings.suppressions
    return SuppressionTerms(
        bounced=given.bounced_seconds or None,
        complained=given.complained_seconds or None,
        unsubscribed=given.unsubscribed_seconds or None,
        invalid=given.invalid_seconds or None,
        share_bounces=given.share_bounces,
    )


def categories(settings: Settings) -> Categories:
    """Everybody's categories and those of tenants."""
    tenants = {
        name: _categories(f"tenant.{name}.", tenant.categories, settings) for name, tenant in settings.tenant.items()
    }
    return Categories(
        shared=_categories("", settings.categories, settings),
        tenants={name: own for name, own in tenants.items() if own},
    )


def _categories(place: str, given: Mapping[str, CategorySettings], settings: Settings) -> dict[str, Category]:
    for name, said in given.items():
        if not is_name(name):
            raise ConfigurationError(f"{place}categories.{name}: a name has a-z, 0-9, '.', '_' and '-'")
        unknown = sorted(set(said.channels) - set(settings.channels))
        if unknown:
            known = ", ".join(settings.channels)
            raise ConfigurationError(f"{place}categories.{name}.channels.{unknown[0]}: the channels are {known}")
        if said.throttle is not None and settings.http.surface == "probes":
            raise ConfigurationError(
                f"{place}categories.{name}.throttle: the ledger of a blueprint with probes alone (http.surface) "
                "counts no throttles; leave it out"
            )
        if said.required and not all(said.channels.values()):
            raise ConfigurationError(f"{place}categories.{name}: what is required cannot be off by default")
    return {name: _category(f"{place}categories.{name}", name, said) for name, said in given.items()}


def _category(place: str, name: str, said: CategorySettings) -> Category:
    throttle = None if said.throttle is None else read_throttle(said.throttle, said.overflow)
    if said.throttle is not None and throttle is None:
        raise ConfigurationError(f"{place}.throttle: {said.throttle!r} is not written like '3 in 1h'")
    return Category(
        name=name,
        required=said.required,
        channels=said.channels,
        titles=said.titles,
        texts=said.texts,
        urgent=said.urgent,
        throttle=throttle,
    )


def links(settings: Settings) -> Links:
    """The maker of links to people's pages; the key of `local` is public, and counts on loopback only."""
    consent = settings.consent
    return Links(
        [key for key in consent.keys if key != TRIAL_KEY or is_loopback(settings.http.host)],
        consent.url or _own_url(settings),
        link_seconds=consent.link_seconds,
        unsubscribe_seconds=consent.unsubscribe_seconds,
    )


def _own_url(settings: Settings) -> str | None:
    """The address of a process that only this machine reaches; a public URL cannot be guessed."""
    http = settings.http
    if not http.port or not is_loopback(http.host):
        return None
    return f"http://{f'[{http.host}]' if ':' in http.host else http.host}:{http.port}"


def unsubscribes(settings: Settings) -> Callable[[Claim], str | None]:
    """Where one click leaves the category of a message."""
    made, known = links(settings), categories(settings)
    return lambda claim: made.unsubscribe(claim, known)


def policies(settings: Settings) -> PolicyTable:
    """Retry policies; the drill's time scale multiplies their waits."""
    scale = settings.drill.time_scale
    enabled = {name: policy for name, policy in settings.policy.retry.items() if policy.enabled}
    return PolicyTable({name: policy.scaled(scale) for name, policy in enabled.items()})


def breaker_policies(settings: Settings) -> dict[str, BreakerPolicy]:
    """Breaker policies by provider, in lower case; the drill's time scale multiplies their open times."""
    return {name: policy.of_provider() for name, policy in endpoint_policies(settings).items()}


def endpoint_policies(settings: Settings) -> dict[str, BreakerPolicy]:
    """The same policies for the endpoints of each provider."""
    scale = settings.drill.time_scale
    found = {name.lower(): policy.of_endpoints().scaled(scale) for name, policy in settings.policy.breaker.items()}
    named = {name: found[name.lower()] for name in settings.providers if name.lower() in found}
    return {"*": BreakerPolicy().of_endpoints(), **found, **named}


def rates(settings: Settings) -> Rates:
    """The configured rates of providers, endpoints and tenants."""
    found = {name.lower(): policy for name, policy in settings.policy.rate.items()}
    named = {name: found[name.lower()] for name in settings.providers if name.lower() in found}
    tenants = {name: tenant.requests_per_second for name, tenant in settings.tenant.items()}
    return Rates({**found, **named}, {name: rate for name, rate in tenants.items() if rate is not None})


def groups(settings: Settings) -> dict[str, Groups]:
    """How the routes of each provider form groups; in `local` the sandbox stands in and forms them by tenant."""
    return {name: _groups(name, options, settings.groups.get(name)) for name, options in settings.providers.items()}


def _groups(provider: str, options: dict[str, Any], given: GroupSettings | None) -> Groups:
    kind = str(options.get("kind"))
    said = given or GroupSettings()
    by = said.by or GROUPED_BY.get(kind, "tenant")
    cap = said.cap
    if cap is None and kind == "webhook" and by == "endpoint":
        cap = int(options.get("concurrency_per_endpoint", CONCURRENCY_PER_ENDPOINT))
    capped = cap is not None or any(member.cap is not None for member in said.members.values())
    special = {
        group_number(member.tenant, endpoint_name(f"//{name}"))
        if by == "endpoint"
        else tenant_number(name, provider if capped else ""): GroupRule(member.weight, member.cap)
        for name, member in said.members.items()
    }
    address = options.get("url") if by == "endpoint" else None
    shared = frozenset(endpoint_name(url) for url in options.get("endpoints") or ())
    return Groups(provider=provider, by=by, cap=cap, address=address, special=special, shared=shared)


def plan_rules(settings: Settings, channels: dict[str, tuple[str, ...]]) -> PlanRules:
    """The rules by which intake plans routes."""
    return PlanRules(
        channels=channels,
        policies=policies(settings),
        lanes=lanes(settings),
        locale=LocaleRules(settings.locale.default, settings.locale.on_missing),
        zone=settings.locale.time_zone,
        tenant_zones={name: tenant.time_zone for name, tenant in settings.tenant.items() if tenant.time_zone},
        tenant_locales={
            name: tenant.default_locale for name, tenant in settings.tenant.items() if tenant.default_locale is not None
        },
        missing_variable=settings.templates.missing_variable,
        idempotency_ttl_seconds=settings.idempotency_ttl_seconds,
        supported_locales=tuple(settings.locale.supported) if settings.templates.render == "downstream" else (),
        categories=categories(settings),
        carry=messages.carry_rules(settings),
        groups=groups(settings),
        tells=reports.goals(settings, channels),
        deadlines=reports.deadlines(settings, channels),
        gathers=settings.http.surface != "probes",
    )
