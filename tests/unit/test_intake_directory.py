"""What a directory's answers mean, and how it is asked."""

import asyncio
import json

import pytest

from carillon.domain.events import Event, PersonSought
from carillon.domain.people import Found, NoSuchPerson, NotAnswered, Profile
from carillon.intake.directory import HttpDirectory, read_profile
from tests.support.clocks import ManualClock

ADA = {"email": "ada@example.com", "preferred_language": "en"}
KNOWN = Profile(addresses={"email": "ada@example.com"}, locale="en")


@pytest.mark.req("S1-91")
@pytest.mark.parametrize("said", [ADA, {"user": ADA}, {"account": ADA}, {"account": ADA, "request_id": "r"}])
def test_a_person_is_read_from_each_documented_shape(said: object) -> None:
    assert read_profile(200, json.dumps(said).encode()) == KNOWN


@pytest.mark.req("S1-92")
def test_a_sure_no_is_nobody() -> None:
    said = {"error": {"code": "subject_not_found", "message": "no such user"}}
    assert read_profile(404, json.dumps(said).encode()) == NoSuchPerson()


@pytest.mark.req("S1-68", "S1-93")
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (404, b'{"error":{"code":"route_not_found"}}'),
        (404, b'{"error":"subject_not_found"}'),
        (500, b"{}"),
        (503, b""),
        (429, b"{}"),
        (401, b"{}"),
        (302, b""),
        (200, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"user":"ada"}'),
        (200, b"[" * 100_000),
        (200, b'{"email":"\xff"}'),
    ],
)
def test_whatever_else_may_be_answered_later(status: int, body: bytes) -> None:
    assert isinstance(read_profile(status, body), NotAnswered)


@pytest.mark.req("S1-94")
@pytest.mark.parametrize("email", ["", " ", "ada", "@", "a b@c", "a@b@c", None, 7, "a\x00@b", "x@y\nBcc: z"])
def test_without_a_valid_address_email_is_out_of_reach(email: object) -> None:
    profile = read_profile(200, json.dumps({"email": email, "preferred_language": "fr"}).encode())
    assert isinstance(profile, Profile)
    assert profile.addresses == {}
    assert "email" in profile.unreachable
    assert profile.locale == "fr"


@pytest.mark.parametrize("language", ["", None, 5, []])
def test_a_language_that_is_none_is_left_open(language: object) -> None:
    profile = read_profile(200, json.dumps(ADA | {"preferred_language": language}).encode())
    assert isinstance(profile, Profile)
    assert profile.locale is None


class Asked:
    """A directory behind a recording fetch."""

    def __init__(self, failing: frozenset[str] = frozenset(), concurrency: int = 2) -> None:
        self.urls: list[str] = []
        self.events: list[Event] = []
        self.at_once = self.most_at_once = 0
        self._failing = failing
        self._directory = HttpDirectory(
            self._fetch,
            "http://users/api/v1/internal/users/{user_id}",
            concurrency=concurrency,
            clock=ManualClock(),
            observer=self.events.append,
        )

    async def find(self, *user_ids: str) -> dict[str, Found]:
        return await self._directory.find(user_ids)

    async def _fetch(self, url: str) -> tuple[int, bytes] | str:
        self.urls.append(url)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        user_id = url.rpartition("/")[2]
        return "connection refused" if user_id in self._failing else (200, json.dumps(ADA).encode())


@pytest.mark.req("S1-90", "S1-07")
async def test_ids_are_escaped_into_the_path() -> None:
    asked = Asked()
    assert await asked.find("a/b?c", "a@b.c") == {"a/b?c": KNOWN, "a@b.c": KNOWN}
    assert {url.rpartition("/")[2] for url in asked.urls} == {"a%2Fb%3Fc", "a%40b.c"}


async def test_each_person_is_asked_about_once_and_few_at_a_time() -> None:
    asked = Asked(concurrency=3)
    await asked.find(*(f"u{number % 10}" for number in range(30)))
    assert sorted(asked.urls) == sorted(set(asked.urls))
    assert len(asked.urls) == 10
    assert asked.most_at_once == 3


async def test_after_a_failure_the_rest_is_left_for_later() -> None:
    asked = Asked(failing=frozenset({"u1"}), concurrency=1)
    found = await asked.find("u0", "u1", "u2", "u3")
    assert isinstance(found["u0"], Profile)
    assert all(isinstance(found[user], NotAnswered) for user in ("u1", "u2", "u3"))
    assert len(asked.urls) == 2


@pytest.mark.req("S1-169")
async def test_every_question_is_told() -> None:
    asked = Asked(failing=frozenset({"u1"}), concurrency=1)
    await asked.find("u0", "u1")
    told = [(event.result, event.error) for event in asked.events if isinstance(event, PersonSought)]
    assert told == [("found", None), ("failed", "connection refused")]
