"""Bounds on how much the world may ask at once: requests per second, and which hosts are ours."""

import ipaddress
from collections import OrderedDict
from functools import lru_cache

_MAX_KEYS = 10_000


class Buckets:
    """One token bucket per key; the longest unused key is forgotten when there are too many."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Take one token; 0 when there was one, otherwise the seconds until there will be."""
        level, then = self._levels.pop(key, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._per_second)
        wait = 0.0 if level >= 1.0 else (1.0 - level) / self._per_second
        self._levels[key] = (level - 1.0 if wait == 0.0 else level, now)
        if len(self._levels) > _MAX_KEYS:
            self._levels.popitem(last=False)
        return wait


@lru_cache(maxsize=256)
def host_name(header: bytes) -> str:
    """The name in a Host header, without its port, in lower case."""
    text = header.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """A page that made its own name resolve to us arrives with that name, which is not one of these."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
