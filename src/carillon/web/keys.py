"""API keys at the door: `ck_<8 public>_<43 secret>`, found by the public part, believed by the digest of the secret."""

import asyncio
import hashlib
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.keys import ApiKey, KeyFinder
from carillon.web.auth import Unauthorized
from carillon.web.request import Caller

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX = b"ck_"
KEY_BYTES = 40
"""Random bytes that one key is made of: 8 for the public part, 32 for the secret."""
FRESH_SECONDS = 4.0
"""How long an answer of the ledger is believed: together with the asking, a revoked key ends within 5 s."""
NOTED_SECONDS = 60.0
_PUBLIC, _SECRET = 8, 43
_FORM = re.compile(rb"ck_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})")
_MAX_REMEMBERED = 10_000
_NOBODY = "0" * 64


class MadeKey(NamedTuple):
    """A fresh key: what the caller gets to see once, and what is kept of it."""

    text: str
    key_id: str
    secret_hash: str


def make_key(noise: bytes) -> MadeKey:
    """The key that these random bytes are."""
    if len(noise) != KEY_BYTES:
        raise ValueError(f"a key takes {KEY_BYTES} random bytes")
    key_id, secret = _base62(noise[:_PUBLIC], _PUBLIC), _base62(noise[_PUBLIC:], _SECRET)
    return MadeKey(f"ck_{key_id}_{secret}", key_id, _digest(secret.encode()))


def is_key(credential: bytes) -> bool:
    """Whether it means to be a key, well-formed or not."""
    return credential.startswith(PREFIX)


class Keys:
    """Turns a key into a caller; the ledger is asked about each key every few seconds at most."""

    def __init__(
        self,
        ledger: KeyFinder,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._wall = wall
        self._monotonic = monotonic
        self._asked: OrderedDict[str, tuple[float, asyncio.Future[ApiKey | None]]] = OrderedDict()
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._noting: set[asyncio.Task[None]] = set()

    async def caller(self, credential: bytes) -> Caller:
        """The caller a valid key names; 401 otherwise, always with the same body."""
        form = _FORM.fullmatch(credential)
        if form is None:
            raise Unauthorized("malformed")
        key = await self._find(form[1].decode())
        # Compared also where there is nothing to compare with: how long it takes tells nobody which keys there are.
        same = hmac.compare_digest(_digest(form[2]), _NOBODY if key is None else key.secret_hash)
        if key is None or not same:
            raise Unauthorized("unknown" if key is None else "forged")
        if not key.active(self._wall() * 1000):
            raise Unauthorized("expired" if key.revoked_at is None else "revoked")
        self._note(key.key_id)
        return Caller(f"key:{key.key_id}", key.role, key.tenant_id, key.key_id)

    async def _find(self, key_id: str) -> ApiKey | None:
        now = self._monotonic()
        held = self._asked.get(key_id)
        if held is None or now - held[0] >= FRESH_SECONDS or _failed(held[1]):
            held = (now, asyncio.ensure_future(self._ledger.api_key(key_id)))
            self._asked[key_id] = held
            self._asked.move_to_end(key_id)
            if len(self._asked) > _MAX_REMEMBERED:
                self._asked.popitem(last=False)
        # Several requests may wait for one answer: the first that leaves must not take it from the others.
        return await asyncio.shield(held[1])

    def _note(self, key_id: str) -> None:
        now = self._monotonic()
        noted = self._noted.get(key_id)
        if noted is not None and now - noted < NOTED_SECONDS:
            return
        self._noted[key_id] = now
        self._noted.move_to_end(key_id)
        if len(self._noted) > _MAX_REMEMBERED:
            self._noted.popitem(last=False)
        task = asyncio.create_task(self._write_note(key_id))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _write_note(self, key_id: str) -> None:
        try:
            await self._ledger.touch_api_key(key_id, NOTED_SECONDS)
        except LedgerUnavailable:
            # It is for people who wonder which keys are still in use; the next use writes it.
            self._noted.pop(key_id, None)


def _failed(answer: "asyncio.Future[ApiKey | None]") -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _base62(noise: bytes, width: int) -> str:
    number = int.from_bytes(noise)
    letters = []
    for _ in range(width):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    return "".join(letters)
