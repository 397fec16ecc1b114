"""How callers prove who they are: settings of bearer tokens, revoked tokens, API keys and tickets."""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Container
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.domain.keys import ApiKey, KeyFinder
from carillon.domain.streams import Ticket, TicketLedger
from carillon.web.problems import Problem
from carillon.web.request import Caller, Proof, Request

SHARED = "HS256"
MAX_LEEWAY_SECONDS = 30.0
TENANT = re.compile(r"[A-Za-z0-9._:-]{1,64}")

Refusal = Literal[
    "missing",
    "malformed",
    "unknown",
    "forged",
    "expired",
    "premature",
    "overlong",
    "foreign",
    "incomplete",
    "revoked",
    "misplaced",
]
"""What is wrong with a token, a key or a ticket."""
LOOK_SECONDS = 5.0
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
KEY_PREFIX = b"ck_"
KEY_BYTES = 40
"""Random bytes that one key is made of: 8 for the public part, 32 for the secret."""
FRESH_SECONDS = 4.0
"""How long an answer of the ledger is believed: together with the asking, a revoked key ends within 5 s."""
NOTED_SECONDS = 60.0
_PUBLIC, _SECRET = 8, 43
_FORM = re.compile(rb"ck_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})")
_MAX_REMEMBERED = 10_000
_NOBODY = "0" * 64
TICKET_PREFIX = "st_"
_NOISE_BYTES = 32
_LONGEST = 100
_NAMED = re.compile(rb"(?:\A|&)ticket=([^&]*)")


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are checked: with a secret for HS256, with a public key or a set of them for everything else."""

    secret: str | None = None
    algorithm: str = SHARED
    public_key: bytes | None = None
    """PEM."""
    jwks: bytes | None = None
    """A JSON Web Key Set."""
    issuer: str | None = None
    audience: str | None = None
    typ: str = "JWT"
    leeway_seconds: float = MAX_LEEWAY_SECONDS
    max_lifetime_seconds: float = 3600.0
    admin_max_lifetime_seconds: float | None = None
    revoked: Container[str] | None = None
    """The `jti` of tokens that were taken back; with it every token must have one."""


def fits_tenant(name: str) -> bool:
    """Whether a tenant can be called so."""
    return TENANT.fullmatch(name) is not None


class Unauthorized(Problem):
    """The answer to every failure; its reason is for the operator alone, unless `message` says it to the caller."""

    def __init__(self, reason: Refusal, message: str = "a valid bearer token is required") -> None:
        super().__init__("UNAUTHORIZED", message, headers={"WWW-Authenticate": "Bearer"})
        self.reason = reason


class Revoked:
    """The ids in the file; if the file cannot be read, the ids that it held last."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._stamp: tuple[int, int] | None = None
        self._ids: frozenset[str] = frozenset()
        self._looked = monotonic()
        try:
            self._read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"auth.revoked_file: {path}: {error}") from None

    def __contains__(self, token_id: object) -> bool:
        now = self._monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            try:
                self._read()
            except (OSError, UnicodeDecodeError):
                # An operator who replaces the file may remove it for a moment; revoked tokens stay revoked.
                self._stamp = None
        return token_id in self._ids

    def _read(self) -> None:
        found = self._path.stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._ids = frozenset(self._path.read_text(encoding="utf-8").split())
            self._stamp = stamp


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
    return credential.startswith(KEY_PREFIX)


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
        # Compare also for an unknown key: the duration must not reveal which keys exist.
        same = hmac.compare_digest(_digest(form[2]), _NOBODY if key is None else key.secret_hash)
        if key is None or not same:
            raise Unauthorized("unknown" if key is None else "forged")
        if not key.active(self._wall() * 1000):
            raise Unauthorized("expired" if key.revoked_at is None else "revoked")
        self._note(key.key_id)
        return Caller(f"key:{key.key_id}", key.role, key.tenant_id, key.key_id, key.name)

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


class Tickets:
    """Issues and checks tickets; the ledger stores only their digests."""

    def __init__(
        self,
        ledger: TicketLedger,
        *,
        seconds: float,
        lifetime_seconds: float,
        revoked: Container[str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Good for opening within `seconds`, and for what belongs to the stream as long as that may live."""
        self._ledger = ledger
        self.seconds = seconds
        self._lifetime_seconds = lifetime_seconds
        self._revoked = revoked
        self._wall = wall

    async def issue(self, ticket: Ticket) -> str:
        """The text that its holder shows."""
        text = TICKET_PREFIX + secrets.token_urlsafe(_NOISE_BYTES)
        await self._ledger.add_ticket(_digest(text.encode()), ticket, self.seconds)
        return text

    async def find(self, text: str, *, opens: bool) -> Ticket:
        """The holder of a ticket; 401 if it is unknown, used up or expired."""
        found = None
        if text.startswith(TICKET_PREFIX) and len(text) <= _LONGEST:
            digest = _digest(text.encode())
            if opens:
                found = await self._ledger.open_ticket(digest, self._lifetime_seconds)
            else:
                found = await self._ledger.ticket(digest)
        if found is None:
            raise Unauthorized("unknown")
        self.check(Proof(found.expires_at_ms, found.token_id))
        return found

    def check(self, proof: Proof) -> None:
        """401 if the token behind the ticket is expired or revoked."""
        if proof.expires_at_ms is not None and self._wall() * 1000 >= proof.expires_at_ms:
            raise Unauthorized("expired")
        if self._revoked is not None and proof.token_id is not None and proof.token_id in self._revoked:
            raise Unauthorized("revoked")


def shown(request: Request) -> str | None:
    """The ticket in a request's head: in its query, or as its bearer token."""
    named = _NAMED.search(request.scope["query_string"])
    if named is not None:
        return unquote(named[1].decode("latin-1"))
    text = (request.header(b"authorization") or "").partition(" ")[2].strip()
    return text if text.startswith(TICKET_PREFIX) else None
