"""What a rehearsal plays: the load, the outages, the prices, and how a question writes them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Priority
from carillon.domain.timing import duration

Kind = Literal["down", "hanging", "silent", "slow", "throttled", "failing"]
KINDS: tuple[Kind, ...] = ("down", "hanging", "throttled", "failing", "silent", "slow")
"""The worst first."""
_PERIODS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,6})?)/(?P<per>s|min|m|h|d)")
_SHARE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3})?%")
_PART = re.compile(
    r"(?P<channel>[A-Za-z][A-Za-z0-9_]{0,31})(?:/(?P<way>high|normal|bulk))?(?:=(?P<share>[0-9.]{1,9}))?"
)
AFTER_SECONDS = 1800.0
"""So long notifications go on arriving after the last outage."""
SHORTEST_SECONDS = 3600.0
MILLISECOND = 0.001
MOST_PLAYED = 1_000_000
Written: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
HOW = '"NAME DURATION [at DURATION] [down, hanging, silent, slow DURATION, throttled or failing SHARE%]"'


class RehearsalQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rehearsal as it is asked for; each value is written as on the command line of `carillon rehearse`."""

    load: Written = "10/s"
    """How many notifications arrive: 500/s, 30/min, 2000/h, 1000000/d."""
    lasts: Written | None = msgspec.field(default=None, name="for")
    """How long notifications arrive: 90s, 10m, 2h; without it until half an hour after the last outage."""
    outages: Annotated[list[Written], Meta(max_length=20)] = []
    """What fails: `twilio 2h`, `twilio 2h at 30m`, `twilio 20m slow 8s`, `twilio 1h failing 30%`."""
    mix: Annotated[list[Written], Meta(max_length=50)] = []
    """Kinds of notifications and their shares: `sms=3`, `sms/high=1`, `email/bulk=6`; without one every channel."""
    prices: Annotated[list[Written], Meta(max_length=50)] = []
    """What one message costs at a provider: `twilio=0.0079`."""
    latencies: Annotated[list[Written], Meta(max_length=50)] = []
    """The median time of a call: `twilio=300ms`, or `*=150ms` for all others."""
    processes: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many processes send."""
    most: Annotated[int, Meta(ge=100, le=MOST_PLAYED)] = 10_000
    """Play at most so many; each of them stands for several if more arrive."""
    seed: int = 1
    """Another seed throws other dice; the same one repeats a rehearsal."""


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that does not work for a while."""

    provider: str
    begins: float
    """Seconds after the begin of the rehearsal."""
    seconds: float
    kind: Kind = "down"
    slow_seconds: float = 0.0
    """How long a call takes while the provider is slow."""
    share: float = 1.0
    """The share of the calls that fail."""

    @property
    def ends(self) -> float:
        return self.begins + self.seconds

    def holds(self, now: float) -> bool:
        return self.begins <= now < self.ends

    def harm(self) -> tuple[int, float]:
        """Where it stands among those that hold at the same time: the worst first."""
        return KINDS.index(self.kind), -max(self.share, self.slow_seconds)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of notification and its share of the load."""

    channel: str
    priority: Priority = Priority.NORMAL
    bulk: bool = False
    share: float = 1.0


class RehearsalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One rehearsal."""

    per_second: float
    seconds: float
    """How long notifications arrive; the rehearsal goes on until everything is settled, at most `patience` longer."""
    patience: float = 86_400.0
    traffic: tuple[Traffic, ...]
    outages: tuple[Outage, ...] = ()
    prices: Mapping[str, float] = {}
    """The price of one accepted call, by provider."""
    latencies: Mapping[str, float] = {}
    """The median of a call's seconds, by provider; `*` is every other one."""
    processes: int = 1
    most: int = 50_000
    """How many notifications are played at most; each of them stands for several if the load is higher."""
    seed: int = 1

    @property
    def scale(self) -> int:
        """How many notifications one that is played stands for."""
        return max(1, -(-round(self.per_second * self.seconds) // self.most))


def plan_of(question: RehearsalQuestion, channels: Mapping[str, Sequence[str]]) -> RehearsalPlan:
    """The plan that the question means, with the providers of each channel; ConfigurationError names the option."""
    providers = list(dict.fromkeys(name for chain in channels.values() for name in chain))
    outages = tuple(read_outage(text, providers) for text in question.outages)
    seconds = _how_long(outages) if question.lasts is None else read_duration(question.lasts, "--for")
    for text, outage in zip(question.outages, outages, strict=True):
        if outage.begins >= seconds:
            raise ConfigurationError(f"--outage: {text!r} begins after the last notification has arrived")
    return RehearsalPlan(
        per_second=read_rate(question.load),
        seconds=seconds,
        traffic=read_traffic(question.mix, list(channels)),
        outages=outages,
        prices=read_by_provider(question.prices, "--price", providers, read_price),
        latencies=read_by_provider(question.latencies, "--latency", providers, read_latency),
        processes=question.processes,
        most=question.most,
        seed=question.seed,
    )


def _how_long(outages: Sequence[Outage]) -> float:
    return max([SHORTEST_SECONDS, *(one.ends + AFTER_SECONDS for one in outages)])


def read_rate(text: str) -> float:
    """Notifications a second, from `500/s`, `30/m` or `1000000/d`."""
    found = _RATE.fullmatch(text.strip())
    if found is None or float(found["number"]) <= 0:
        raise ConfigurationError(f"--load: {text!r} is not a rate such as 500/s, 30/min, 2000/h or 1000000/d")
    return float(found["number"]) / _PERIODS[found["per"]]


def read_duration(text: str, option: str, least: float = MILLISECOND) -> float:
    """Seconds, from `90`, `10m`, `2h` or `PT2H`."""
    found = duration(text.strip())
    if found is None or found < least:
        raise ConfigurationError(f"{option}: {text!r} is not a duration such as 90s, 10m, 2h or PT2H")
    return found


def read_outage(text: str, providers: Sequence[str]) -> Outage:
    """`twilio 2h`, `twilio 2h at 30m`, `twilio 20m slow 8s`, `twilio 1h failing 30%`."""
    words = text.split()
    if len(words) < 2:  # noqa: PLR2004 - a name and a duration
        raise ConfigurationError(f"--outage: {text!r}: write {HOW}")
    named = {name.lower(): name for name in providers}
    provider = named.get(words[0].lower())
    if provider is None:
        known = ", ".join(providers)
        raise ConfigurationError(f"--outage: no channel of these settings uses {words[0]!r}; the providers are {known}")
    found = Outage(provider=provider, begins=0.0, seconds=read_duration(words[1], "--outage"))
    rest = words[2:]
    if rest[:1] == ["at"]:
        begins = read_duration(rest[1] if len(rest) > 1 else "", "--outage", 0.0)
        found, rest = msgspec.structs.replace(found, begins=begins), rest[2:]
    return _as_told(found, rest, text)


def _as_told(outage: Outage, rest: Sequence[str], text: str) -> Outage:
    kind = next((kind for kind in KINDS if rest[:1] == [kind]), None)
    needed = {"slow": 2, "failing": 2}.get(kind or "", 1)
    if not rest:
        return outage
    if kind is None or len(rest) != needed:
        raise ConfigurationError(f"--outage: {text!r}: write {HOW}")
    if kind == "slow":
        return msgspec.structs.replace(outage, kind=kind, slow_seconds=read_duration(rest[1], "--outage"))
    if kind == "failing":
        if _SHARE.fullmatch(rest[1]) is None or float(rest[1][:-1]) > 100:  # noqa: PLR2004 - all of them
            raise ConfigurationError(f"--outage: {rest[1]!r} is not a share such as 30%")
        return msgspec.structs.replace(outage, kind=kind, share=float(rest[1][:-1]) / 100)
    return msgspec.structs.replace(outage, kind=kind)


def read_traffic(texts: Iterable[str], channels: Sequence[str]) -> tuple[Traffic, ...]:
    """`sms=3`, `sms/high=1`, `email/bulk=6`; every channel alike without one."""
    found: list[Traffic] = []
    for text in texts:
        read = _PART.fullmatch(text.strip())
        try:
            share = 0.0 if read is None else float(read["share"] or 1)
        except ValueError:
            share = 0.0
        if read is None or share <= 0:
            raise ConfigurationError(f"--mix: {text!r}: write CHANNEL, CHANNEL=SHARE or CHANNEL/high|normal|bulk=SHARE")
        if read["channel"] not in channels:
            raise ConfigurationError(
                f"--mix: these settings have no channel {read['channel']!r}; they have {', '.join(channels)}"
            )
        way = read["way"] or "normal"
        priority = Priority.HIGH if way == "high" else Priority.NORMAL
        found.append(Traffic(channel=read["channel"], priority=priority, bulk=way == "bulk", share=share))
    return tuple(found) or tuple(Traffic(channel=channel) for channel in channels)


def read_by_provider(
    texts: Iterable[str], option: str, providers: Sequence[str], read: Callable[[str], float]
) -> dict[str, float]:
    """`NAME=VALUE`, each once."""
    named = {name.lower(): name for name in providers} | {"*": "*"}
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name.strip().lower() not in named:
            raise ConfigurationError(f"{option}: {text!r}: write NAME=VALUE; the providers are {', '.join(providers)}")
        found[named[name.strip().lower()]] = read(value.strip())
    return found


def read_latency(text: str) -> float:
    """The seconds of a usual call."""
    return read_duration(text, "--latency")


def read_price(text: str) -> float:
    """The price of one message."""
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e6:  # noqa: PLR2004 - nan and nonsense
        raise ConfigurationError(f"--price: {text!r} is not a price such as 0.0075")
    return price
