"""The one backoff engine: how long to wait after the n-th failed attempt."""

from typing import Literal

import msgspec


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Waits grow as base·factor^(n-1+first_exponent) up to cap; jitter comes on top of the cap."""

    base: float = 5.0
    factor: float = 2.0
    cap: float = 600.0
    jitter: Literal["none", "additive", "proportional", "full"] = "additive"
    jitter_max: float = 1.0
    first_exponent: int = 0

    def delay(self, failed_attempts: int, dice: float) -> float:
        """Seconds to wait after `failed_attempts` failures; `dice` is uniform in [0, 1)."""
        exponent = max(0, failed_attempts - 1) + self.first_exponent
        try:
            wait = min(self.base * self.factor**exponent, self.cap)
        except OverflowError:
            wait = self.cap if self.base > 0.0 else 0.0
        match self.jitter:
            case "none":
                return wait
            case "additive":
                return wait + dice * self.jitter_max
            case "proportional":
                return wait * (1.0 + dice * self.jitter_max)
            case "full":
                return wait * dice
