"""The JSON of preferences."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.people import Preferences
from carillon.web.problems import rfc3339_ms

CHANNELS = ("email", "sms", "push", "inApp", "webhook")
Locale = Annotated[str, Meta(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}\Z", examples=["en-US"])]
Contact = Annotated[str, Meta(min_length=1, max_length=2000)]
Time = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]\Z", examples=["22:00"])]
Zone = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_+/-]{1,64}\Z", examples=["Europe/Berlin"])]
TenantId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}\Z")]


class ChannelWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whether a channel may be used."""

    is_enabled: bool


class ChannelWishes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Channels to switch on or off; what is not named stays."""

    email: ChannelWish | UnsetType = UNSET
    sms: ChannelWish | UnsetType = UNSET
    push: ChannelWish | UnsetType = UNSET
    in_app: ChannelWish | UnsetType = UNSET
    webhook: ChannelWish | UnsetType = UNSET


class ContactWishes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Where to be reached; null removes."""

    email: Contact | UnsetType | None = UNSET
    phone: Contact | UnsetType | None = UNSET
    push_token: Contact | UnsetType | None = UNSET


class QuietBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """When to be left alone; the end may be on the next day."""

    enabled: bool = True
    start_time: Time | None = None
    end_time: Time | None = None
    timezone: Zone = "UTC"


class PreferencesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What a person wants."""

    preferred_locale: Locale | UnsetType | None = UNSET
    channels: ChannelWishes | UnsetType = UNSET
    contacts: ContactWishes | UnsetType = UNSET
    quiet_hours: QuietBody | UnsetType | None = UNSET


class TenantQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whose user is meant; only for administrators without a tenant."""

    tenant_id: TenantId | UnsetType = UNSET


class QuietView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """When a person is left alone."""

    enabled: bool = False
    start_time: str | None = None
    end_time: str | None = None
    timezone: str = "UTC"


class PreferencesView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a person wants, or the defaults where nothing was said."""

    user_id: str
    tenant_id: str | None
    preferred_locale: str | None
    channels: dict[str, ChannelWish]
    contacts: dict[str, str]
    quiet_hours: QuietView
    updated_at: str | None


def preferences_view(held: Preferences) -> PreferencesView:
    quiet = held.quiet_hours
    return PreferencesView(
        user_id=held.user_id,
        tenant_id=held.tenant_id,
        preferred_locale=held.preferred_locale,
        channels={channel: ChannelWish(held.channels.get(channel, True)) for channel in CHANNELS},
        contacts=held.contacts,
        quiet_hours=QuietView()
        if quiet is None
        else QuietView(
            enabled=quiet.enabled,
            start_time=quiet.start_time or None,
            end_time=quiet.end_time or None,
            timezone=quiet.timezone,
        ),
        updated_at=None if held.updated_at is None else rfc3339_ms(held.updated_at),
    )
