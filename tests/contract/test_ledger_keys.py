"""API keys in both engines: accepted at the door until they are revoked."""

import asyncio
import hashlib
import os

import pytest

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.keys import ApiKey, NewKey
from carillon.ledger.opening import Ledger
from carillon.web.auth import ALPHABET, FRESH_SECONDS, KEY_BYTES, NOTED_SECONDS, Keys, MadeKey, make_key
from carillon.web.problems import Problem
from carillon.web.request import Caller
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.waiting import a_moment_later, until

engine = engine_fixture()
ledger = ledger_fixture()


def new(made: MadeKey, name: str = "orders", tenant: str | None = "acme", lives: float | None = None) -> NewKey:
    return NewKey(
        key_id=made.key_id,
        secret_hash=made.secret_hash,
        tenant_id=tenant,
        role="user",
        name=name,
        lives_seconds=lives,
    )


async def added(ledger: Ledger, **given: object) -> tuple[MadeKey, ApiKey]:
    made = make_key(os.urandom(KEY_BYTES))
    key = await ledger.add_api_key(new(made, **given), 2)  # type: ignore[arg-type]
    assert key is not None
    return made, key


async def refused(keys: Keys, text: str | bytes) -> bool:
    try:
        await keys.caller(text.encode() if isinstance(text, str) else text)
    except Problem as problem:
        return problem.status == 401
    return False


class Time:
    """Both clocks of a Keys."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.wall_now = 1_800_000_000.0

    def keys(self, ledger: Ledger) -> Keys:
        return Keys(ledger, monotonic=lambda: self.now, wall=lambda: self.wall_now)


def test_the_form_of_a_key() -> None:
    made = make_key(bytes(range(KEY_BYTES)))
    prefix, public, secret = made.text.split("_")
    assert (prefix, len(public), len(secret)) == ("ck", 8, 43)
    assert set(public + secret) <= set(ALPHABET)
    assert made.secret_hash == hashlib.sha256(secret.encode()).hexdigest()
    assert make_key(b"\xff" * KEY_BYTES).text.count("_") == 2
    assert make_key(b"\xff" * KEY_BYTES).text != make_key(b"\xff" * (KEY_BYTES - 1) + b"\xfe").text
    with pytest.raises(ValueError, match="random bytes"):
        make_key(b"too few")


async def test_a_key_is_kept_without_its_secret(ledger: Ledger, engine: Engine) -> None:
    made, key = await added(ledger, lives=3600.0)
    assert (key.key_id, key.tenant_id, key.role, key.name) == (made.key_id, "acme", "user", "orders")
    assert key.expires_at == pytest.approx(key.created_at + 3_600_000, abs=50)
    assert (key.last_used_at, key.revoked_at) == (None, None)
    assert await ledger.api_key(made.key_id) == key
    assert await ledger.api_keys() == [key]
    kept = str(await engine.execute("SELECT * FROM api_keys"))
    assert made.text.rpartition("_")[2] not in kept
    assert await ledger.api_key("nobody00") is None


async def test_a_name_has_two_active_keys_at_most(ledger: Ledger) -> None:
    first, _ = await added(ledger)
    second, _ = await added(ledger)
    third = make_key(os.urandom(KEY_BYTES))
    assert await ledger.add_api_key(new(third), 2) is None
    assert await ledger.add_api_key(new(third, tenant=None), 2) is not None
    await ledger.revoke_api_key(first.key_id)
    await a_moment_later()
    fourth, _ = await added(ledger)
    assert [key.key_id for key in await ledger.api_keys() if key.revoked_at is None and key.tenant_id] == [
        fourth.key_id,
        second.key_id,
    ]


async def test_an_expired_key_makes_room(ledger: Ledger) -> None:
    for _ in range(3):
        await added(ledger, lives=-1.0)


async def test_of_many_at_once_two_are_made(ledger: Ledger) -> None:
    made = [make_key(os.urandom(KEY_BYTES)) for _ in range(12)]
    found = await asyncio.gather(*(ledger.add_api_key(new(one), 2) for one in made))
    assert sum(key is not None for key in found) == 2


async def test_revoking_twice_keeps_the_first_time(ledger: Ledger) -> None:
    made, _ = await added(ledger)
    first = await ledger.revoke_api_key(made.key_id)
    assert first is not None
    assert first.revoked_at is not None
    assert await ledger.revoke_api_key(made.key_id) == first
    assert await ledger.revoke_api_key("nobody00") is None


async def test_a_use_is_noted_once_a_minute(ledger: Ledger, engine: Engine) -> None:
    made, _ = await added(ledger)
    await ledger.touch_api_key(made.key_id, 60.0)
    first = await ledger.api_key(made.key_id)
    await ledger.touch_api_key(made.key_id, 60.0)
    assert await ledger.api_key(made.key_id) == first
    await engine.grow_old("api_keys", "last_used_at", 61)
    await ledger.touch_api_key(made.key_id, 60.0)
    again = await ledger.api_key(made.key_id)
    assert first is not None
    assert again is not None
    assert again.last_used_at is not None
    assert first.last_used_at is not None
    assert again.last_used_at >= first.last_used_at


async def test_a_good_key_names_its_caller(ledger: Ledger) -> None:
    made, _ = await added(ledger)
    caller = await Time().keys(ledger).caller(made.text.encode())
    assert caller == Caller(f"key:{made.key_id}", "user", "acme", made.key_id, "orders")
    assert caller.user_id is None


async def test_forged_keys_are_refused(ledger: Ledger) -> None:
    made, _ = await added(ledger)
    other, _ = await added(ledger)
    keys = Time().keys(ledger)
    _, public, secret = made.text.split("_")
    forged = [
        f"ck_{public}_{other.text.rpartition('_')[2]}",
        f"ck_{public}_{secret[:-1]}",
        f"ck_{public}_{secret}x",
        f"ck_{public}_{secret.swapcase()}",
        f"ck_{'z' * 8}_{secret}",
        f"ck_{public}_{made.secret_hash}",
        f"CK_{public}_{secret}",
        f"ck_{public}_' OR 1=1 --",
        "ck_",
        "ck",
        "",
    ]
    for text in forged:
        assert await refused(keys, text), text
    assert await refused(keys, b"ck_\xff\xfe")
    assert await refused(keys, made.text.encode() + b"\n")
    assert not await refused(keys, made.text)


async def test_a_revoked_key_ends_within_five_seconds(ledger: Ledger) -> None:
    made, _ = await added(ledger)
    time = Time()
    keys = time.keys(ledger)
    assert not await refused(keys, made.text)
    await ledger.revoke_api_key(made.key_id)
    time.now += FRESH_SECONDS
    assert FRESH_SECONDS < 5
    assert await refused(keys, made.text)
    assert await refused(time.keys(ledger), made.text)


async def test_an_unknown_key_is_known_soon_after_it_was_made(ledger: Ledger) -> None:
    time = Time()
    keys = time.keys(ledger)
    made = make_key(os.urandom(KEY_BYTES))
    assert await refused(keys, made.text)
    await ledger.add_api_key(new(made), 2)
    time.now += FRESH_SECONDS
    assert not await refused(keys, made.text)


async def test_an_expired_key_is_refused_at_once(ledger: Ledger) -> None:
    made, key = await added(ledger, lives=60.0)
    time = Time()
    assert key.expires_at is not None
    time.wall_now = key.expires_at / 1000 - 1
    keys = time.keys(ledger)
    assert not await refused(keys, made.text)
    time.wall_now += 2
    assert await refused(keys, made.text)


async def test_use_is_noted_beside_the_request_and_not_each_time(ledger: Ledger, engine: Engine) -> None:
    made, _ = await added(ledger)
    time = Time()
    keys = time.keys(ledger)

    async def noted() -> bool:
        key = await ledger.api_key(made.key_id)
        return key is not None and key.last_used_at is not None

    await keys.caller(made.text.encode())
    await until(noted, timeout=30, what="the use to be noted")
    await engine.execute("UPDATE api_keys SET last_used_at = NULL")
    time.now += NOTED_SECONDS - 1
    await keys.caller(made.text.encode())
    await keys.caller(made.text.encode())
    assert not await noted()
    time.now += 1
    await keys.caller(made.text.encode())
    await until(noted, timeout=30, what="the use to be noted again")


async def test_many_requests_ask_the_ledger_once(ledger: Ledger) -> None:
    made, _ = await added(ledger)

    class Counting:
        def __init__(self) -> None:
            self.asked = 0
            self.down = True

        async def api_key(self, key_id: str) -> ApiKey | None:
            self.asked += 1
            if self.down:
                raise LedgerUnavailable("away")
            return await ledger.api_key(key_id)

        async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
            await ledger.touch_api_key(key_id, every_seconds)

    counting = Counting()
    keys = Keys(counting)
    with pytest.raises(LedgerUnavailable):
        await keys.caller(made.text.encode())
    counting.down = False
    await asyncio.gather(*(keys.caller(made.text.encode()) for _ in range(50)))
    assert counting.asked == 2
