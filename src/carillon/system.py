"""The real clock, dice and ids; tests and time scaling put their own in their place."""

import asyncio
import random
import time

# Seeded by the system once: ids must differ, not be secret, and asking the system for each costs more than the id.
_noise = random.Random()  # noqa: S311 - see above


class SystemClock:
    """The machine's time; `scale` below 1 shortens every wait, for drills and tests only."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._scale)


def system_dice() -> float:
    """Uniform in [0, 1); jitter needs no cryptography."""
    return random.random()  # noqa: S311 - jitter, not a secret


def new_id() -> str:
    """A UUIDv7: unique, and growing with time so that index pages stay warm."""
    stamp = time.time_ns() // 1_000_000
    noise = _noise.getrandbits(80)
    value = (stamp & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (noise >> 68) << 64
    value |= 0b10 << 62 | noise & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
