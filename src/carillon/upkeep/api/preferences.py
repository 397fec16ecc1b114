"""Preferences over HTTP: a person's own, and anybody's for administrators."""

from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET

from carillon.domain.addresses import unfit
from carillon.domain.people import CONTACTS, PreferenceLedger, Preferences, QuietHours, Wish
from carillon.upkeep.api.preferences_wire import (
    ContactWishes,
    PreferencesBody,
    PreferencesView,
    QuietBody,
    TenantQuery,
    preferences_view,
)
from carillon.web import About, Answer, Callers, Endpoint, Problem, Reply, Request, in_path, in_query
from carillon.web.problems import Detail

_PATH = "/api/v1/preferences"
_OWN = About(callers=Callers.KNOWN, oneself="needed")
_OF_A_USER = About(callers=Callers.KNOWN, person=(in_path("userId"),), tenant=in_query("tenantId"))
_EXAMPLE: dict[str, Any] = {
    "preferredLocale": "es-MX",
    "channels": {"sms": {"isEnabled": False}},
    "contacts": {"email": "ada@example.org"},
}
_DOES = {
    "GET": ("show", "Show {whose} preferences"),
    "PUT": ("replace", "Replace {whose} preferences"),
    "PATCH": ("change", "Change {whose} preferences; what is left out stays"),
}


def endpoints(ledger: PreferenceLedger) -> list[Endpoint]:
    """The preference endpoints, once for oneself and once by user."""
    desk = _Desk(ledger)
    found: list[Endpoint] = []
    for method, (does, summary) in _DOES.items():
        shared: dict[str, Any] = {
            "method": method,
            "tag": "Preferences",
            "body": None if method == "GET" else PreferencesBody,
            "body_examples": {} if method == "GET" else {"spanish": _EXAMPLE},
            "answers": (Answer(status=200, description="What holds now", kind=PreferencesView),),
        }
        found += [
            Endpoint(
                path=_PATH,
                call=getattr(desk, does),
                name=f"{does}OwnPreferences",
                summary=summary.format(whose="one's own"),
                description="One's own are those of the token's `sub`.",
                about=_OWN,
                problems=("VALIDATION_ERROR",),
                **shared,
            ),
            Endpoint(
                path=f"{_PATH}/user/{{userId}}",
                call=getattr(desk, does),
                name=f"{does}Preferences",
                summary=summary.format(whose="a user's"),
                description="For administrators, and for the user.",
                query=TenantQuery,
                path_examples={"userId": "ada"},
                about=_OF_A_USER,
                problems=("FORBIDDEN",),
                **shared,
            ),
        ]
    return found


class _Desk:
    def __init__(self, ledger: PreferenceLedger) -> None:
        self._ledger = ledger

    async def show(self, request: Request) -> Reply:
        tenant_id, user_id = _whose(request)
        (held,) = await self._ledger.preferences([(tenant_id, user_id)])
        return Reply(200, preferences_view(held or Preferences(tenant_id=tenant_id, user_id=user_id)))

    async def replace(self, request: Request) -> Reply:
        return await self._write(request, replace=True)

    async def change(self, request: Request) -> Reply:
        return await self._write(request, replace=False)

    async def _write(self, request: Request, *, replace: bool) -> Reply:
        tenant_id, user_id = _whose(request)
        body = request.json(PreferencesBody)
        wish = Wish(
            preferred_locale=body.preferred_locale,
            channels={} if body.channels is UNSET else _channels(body),
            contacts={} if body.contacts is UNSET else _contacts(body.contacts),
            quiet_hours=_quiet(body.quiet_hours) if isinstance(body.quiet_hours, QuietBody) else body.quiet_hours,
            replace=replace,
        )
        return Reply(200, preferences_view(await self._ledger.wish(tenant_id, user_id, wish)))


def _whose(request: Request) -> tuple[str | None, str]:
    if request.params:
        request.query(TenantQuery)
    return request.reach.tenant_id, request.reach.user_id or ""


def _channels(body: PreferencesBody) -> dict[str, bool]:
    named: dict[str, Any] = msgspec.to_builtins(body.channels)
    return {channel: wish["isEnabled"] for channel, wish in named.items()}


def _contacts(given: ContactWishes) -> dict[str, str | None]:
    named: dict[str, str | None] = msgspec.to_builtins(given)
    for kind, address in named.items():
        wanted = None if address is None else unfit(CONTACTS[kind], address)
        if wanted is not None:
            field = f"contacts.{kind}"
            raise Problem("VALIDATION_ERROR", f"{field} must be {wanted}", details=[Detail(f"not {wanted}", field)])
    return named


def _quiet(given: QuietBody) -> QuietHours:
    if given.enabled and (given.start_time is None or given.end_time is None):
        raise Problem("VALIDATION_ERROR", "quiet hours need startTime and endTime")
    try:
        ZoneInfo(given.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        field = "quietHours.timezone"
        raise Problem("VALIDATION_ERROR", f"{field} is not known", details=[Detail("not known", field)]) from None
    return QuietHours(
        enabled=given.enabled,
        start_time=given.start_time or "",
        end_time=given.end_time or "",
        timezone=given.timezone,
    )
