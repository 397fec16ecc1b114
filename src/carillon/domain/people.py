"""What is known of people: their profile and preferences, and the addresses that nothing is sent to."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

CONTACTS = {"email": "email", "phone": "sms", "pushToken": "push"}
"""A kind of contact and the channel that uses it."""


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """When somebody is left alone; times are `HH:MM` of the zone, and the end may be on the next day."""

    enabled: bool
    start_time: str
    end_time: str
    timezone: str = "UTC"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A person who is known."""

    addresses: dict[str, str] = {}
    """Channel to address."""
    unreachable: dict[str, str] = {}
    """Channel to the reason why there is no address the person could be reached at."""
    locale: str | None = None
    refused: frozenset[str] = frozenset()
    """Channels the person has switched off."""
    quiet_hours: QuietHours | None = None


class NoSuchPerson(msgspec.Struct, frozen=True):
    """The directory is sure that there is nobody of that name."""


class NotAnswered(msgspec.Struct, frozen=True):
    """The directory could not be asked now; the same question may be answered later."""

    error: str


Found = Profile | NoSuchPerson | NotAnswered


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """What one person wants."""

    tenant_id: str | None
    user_id: str
    preferred_locale: str | None = None
    channels: dict[str, bool] = {}
    """Only the channels something was said about."""
    contacts: dict[str, str] = {}
    quiet_hours: QuietHours | None = None
    updated_at: int | None = None
    """Unix milliseconds; None when nothing was ever said."""


class PreferenceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of preferences: what is not given stays, unless all is replaced."""

    preferred_locale: str | UnsetType | None = UNSET
    channels: dict[str, bool] = {}
    contacts: dict[str, str | None] = {}
    """None removes."""
    quiet_hours: QuietHours | UnsetType | None = UNSET
    replace: bool = False


class PreferenceLedger(Protocol):
    """Where preferences are kept."""

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        """Of each tenant and user, in order; None where nothing was ever said."""
        ...

    async def change_preferences(self, tenant_id: str | None, user_id: str, change: PreferenceChange) -> Preferences:
        """Write a change down; answers what holds now."""
        ...

    async def disable(self, tenant_id: str | None, user_id: str, channel: str) -> None:
        """Switch a channel off, as an unsubscribe does."""
        ...


class Suppression(msgspec.Struct, frozen=True):
    """Nothing more is sent to this address, for one tenant or, if the tenant is empty, for everybody."""

    channel: str
    address: str
    tenant_id: str
    reason: str
    source: str
    """Its origin: delivery, receipt, operator or unsubscribe."""
    seconds: float | None = None
    """For how long; None is for ever."""


class SuppressionLedger(Protocol):
    """Where suppressions are kept."""

    async def suppress(self, suppressions: Sequence[Suppression]) -> None:
        """Store suppressions; an existing one never becomes shorter."""
        ...

    async def unsuppress(self, channel: str, address: str, tenant_id: str) -> bool:
        """End one suppression; False if there was none."""
        ...

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Current suppressions, newest first, and how many match in all."""
        ...
