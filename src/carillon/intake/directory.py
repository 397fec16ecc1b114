"""A directory of people over HTTP: one request per person, a limited number at once, none after the first failure."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import msgspec

from carillon.domain.events import PersonSought
from carillon.domain.people import Found, NoSuchPerson, NotAnswered, Profile
from carillon.domain.ports import Clock, Observer

Fetch = Callable[[str], Awaitable[tuple[int, bytes] | str]]
"""GET a URL within a deadline; returns status and body, or the error."""

_OK, _NOT_FOUND = 200, 404
_ADDRESS = re.compile(r"[^@\s\x00-\x1f\x7f,;<>\"]{1,64}@[^@\s\x00-\x1f\x7f,;<>\"]{1,255}")
_WORDS = {Profile: "found", NoSuchPerson: "not_found", NotAnswered: "failed"}


class HttpDirectory:
    """Satisfies Directory."""

    def __init__(self, fetch: Fetch, url: str, *, concurrency: int, clock: Clock, observer: Observer) -> None:
        self._fetch = fetch
        self._url = url
        """`url` has `{user_id}` in place of the id."""
        self._concurrency = concurrency
        self._clock = clock
        self._observe = observer

    async def find(self, user_ids: Collection[str]) -> dict[str, Found]:
        found: dict[str, Found] = {}
        waiting = iter(dict.fromkeys(user_ids))
        failed = False

        async def ask_on() -> None:
            nonlocal failed
            for user_id in waiting:
                if failed:
                    found[user_id] = NotAnswered("an earlier request to the directory failed, so this one was not sent")
                else:
                    found[user_id] = said = await self._ask(user_id)
                    failed |= isinstance(said, NotAnswered)

        await asyncio.gather(*(ask_on() for _ in range(min(self._concurrency, len(user_ids)))))
        return found

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    async def _ask(self, user_id: str) -> Found:
        began = self._clock.monotonic()
        answer = await self._fetch(self._url.replace("{user_id}", quote(user_id, safe="")))
        said = NotAnswered(answer) if isinstance(answer, str) else read_profile(*answer)
        self._observe(
            PersonSought(
                result=_WORDS[type(said)],
                duration_ms=(self._clock.monotonic() - began) * 1000,
                error=said.error if isinstance(said, NotAnswered) else None,
            )
        )
        return said


def read_profile(status: int, body: bytes) -> Found:
    """Read an answer; one that cannot be read counts as no answer, so that the intake asks again."""
    said = _object(body)
    if status == _NOT_FOUND:
        error = said.get("error") if said is not None else None
        if isinstance(error, dict) and error.get("code") == "subject_not_found":
            return NoSuchPerson()
        # A wrong base URL answers 404 too, and must not make every person unknown.
        return NotAnswered("the directory answered 404 without subject_not_found: is its URL right?")
    if status != _OK:
        return NotAnswered(f"the directory answered {status}")
    person = _person(said) if said is not None else None
    if person is None:
        return NotAnswered("the directory's answer has neither email nor preferred_language")
    return _profile(person)


def _profile(person: Mapping[str, Any]) -> Profile:
    language = person.get("preferred_language")
    locale = language if isinstance(language, str) and language else None
    email = person.get("email")
    if isinstance(email, str) and _ADDRESS.fullmatch(email.strip()):
        return Profile(addresses={"email": email.strip()}, locale=locale, time_zone=_zone(person))
    return Profile(
        unreachable={"email": "the directory has no valid e-mail address for this person"},
        locale=locale,
        time_zone=_zone(person),
    )


def _zone(person: Mapping[str, Any]) -> str | None:
    """The person's time zone; a name that nobody knows counts as none."""
    name = person.get("time_zone")
    if not isinstance(name, str):
        return None
    try:
        return ZoneInfo(name).key
    except (OSError, ValueError):
        return None


def _person(said: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for held in (said, said.get("account"), said.get("user")):
        if isinstance(held, dict) and ("email" in held or "preferred_language" in held):
            return held
    return None


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
