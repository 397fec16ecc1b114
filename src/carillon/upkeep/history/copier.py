"""Copies ended notifications to ClickHouse for later analysis, apart from delivery."""

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from carillon.domain.errors import ArchiveUnavailable, ConfigurationError, LedgerUnavailable
from carillon.domain.events import HistoryKept, Trouble
from carillon.domain.history import Archive, EndedRoute, HistoryLedger
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_BACKOFF = Backoff(base_delay_seconds=0.25, max_delay_seconds=5.0, jitter="none")
T = TypeVar("T")
TABLE = "notification_history"
_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONNECT_SECONDS = 5
_CHDB, _HTTP = "chdb", ("http", "https")


class HistoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """The batch size, the interval, and the lease of the one process that copies."""

    batch: int = 5000
    poll_seconds: float = 5.0
    lag_seconds: float = 1.0
    lease_seconds: float = 30.0
    """Longer than the archive needs for a batch; two copiers at once would only waste work."""


class History:
    """Reads ended routes in the order of their commits, and advances its mark after the archive has them.

    A crash in between copies them again; the archive counts each ended route once.
    """

    def __init__(
        self,
        ledger: HistoryLedger,
        archive: Archive,
        *,
        owner: str,
        clock: Clock,
        observer: Observer,
        rules: HistoryRules | None = None,
    ) -> None:
        """`owner` is unique to this process."""
        self._ledger = ledger
        self._archive = archive
        self._owner = owner
        self._clock = clock
        self._observe = observer
        self._rules = rules or HistoryRules()

    async def run(self) -> None:
        """Copy until cancelled."""
        failures = 0
        while True:
            try:
                more = await self.keep()
            except (ArchiveUnavailable, LedgerUnavailable) as error:
                failures += 1
                wait = _BACKOFF.delay(failures, 0.0)
                self._observe(Trouble(where="history", error=str(error), retry_in_seconds=wait))
            else:
                failures, wait = 0, 0.0 if more else self._rules.poll_seconds
            await self._clock.sleep(wait)

    async def keep(self) -> bool:
        """Copy one batch; returns whether more may be ready to copy."""
        rules = self._rules
        cursor = await self._ledger.take_history(self._owner, rules.lease_seconds, rules.lag_seconds)
        if cursor is None:
            return False
        endings = await self._ledger.endings(cursor.mark, cursor.until_us, rules.batch)
        if not endings:
            return False
        faultpoint("before_history")
        await self._archive.add(endings)
        faultpoint("after_history")
        await self._forget_erased(endings)
        if await self._ledger.advance_history(self._owner, endings[-1].mark):
            behind = self._clock.wall() - endings[-1].changed_us / 1e6
            self._observe(HistoryKept(endings=len(endings), behind_seconds=max(0.0, behind)))
        return len(endings) == rules.batch

    async def _forget_erased(self, endings: Sequence[EndedRoute]) -> None:
        """Remove what was erased between reading and copying: the erasure may have cleaned the archive too early.

        An erasure that begins later finds these lines there.
        """
        ids = list({one.notification_id for one in endings})
        there = await self._ledger.still_there(ids)
        gone = [each for each in ids if each not in there]
        if gone:
            await self._archive.forget_notifications(gone)


class ArchiveAddress(msgspec.Struct, frozen=True):
    """The address of the archive."""

    scheme: str
    host: str = ""
    port: int | None = None
    username: str | None = None
    password: str = ""
    database: str | None = None
    folder: str = ""

    @classmethod
    def parse(cls, url: str) -> "ArchiveAddress":
        """`http://user:password@host:8123/database`, or `chdb:///folder`; the URL itself may carry a password."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ConfigurationError("history.url is not a URL; write http://host:8123 or chdb:///folder") from None
        if parts.scheme == _CHDB:
            if parts.netloc or len(parts.path) <= 1:
                raise ConfigurationError("history.url names no folder; write chdb:///folder, from the root on")
            return cls(scheme=_CHDB, folder="/" + unquote(parts.path).lstrip("/"))
        if parts.scheme not in _HTTP or not parts.hostname:
            raise ConfigurationError("history.url must begin with http://, https:// or chdb:///")
        return cls._served(parts, port)

    @classmethod
    def _served(cls, parts: SplitResult, port: int | None) -> "ArchiveAddress":
        return cls(
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=port,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
            database=unquote(parts.path.strip("/")) or None,
        )


class ClickHouse:
    """Satisfies Archive; connected only while it works, because a folder can be open in one process at a time."""

    def __init__(self, url: str, *, keep_days: int = 30, timeout_seconds: float = 15.0) -> None:
        self._place = ArchiveAddress.parse(url)
        self._days = str(int(keep_days))
        self._timeout = timeout_seconds
        self._sql = _statements()
        self._busy = False
        self._prepared = False
        _need_packages(self._place)

    async def add(self, endings: Sequence[EndedRoute]) -> None:
        """Store all of them; after ArchiveUnavailable, any part of them may be stored."""

        def work(client: "Client") -> None:
            if not self._prepared:
                self._prepare(client)
            names, values = _columns(endings)
            client.insert(TABLE, values, column_names=names, column_oriented=True)
            self._prepared = True

        try:
            await self._do(work)
        except ArchiveUnavailable:
            # An operator may have replaced the database with an empty one.
            self._prepared = False
            raise

    async def ask(self, question: str, **given: object) -> list[dict[str, Any]]:
        """The rows of a named query."""

        def work(client: "Client") -> list[dict[str, Any]]:
            self._prepare(client)
            return list(client.query(self._sql[question], parameters=given).named_results())

        return await self._do(work)

    async def forget(self, tenant_id: str | None, user_id: str) -> None:
        """Remove the lines about a person; returns once they are gone."""

        def work(client: "Client") -> None:
            self._prepare(client)
            salt = secrets.token_hex(8)
            digest = hashlib.sha256(f"{salt}{user_id}".encode("utf-8", "surrogatepass")).hexdigest().upper()
            client.command(self._sql["forget"], parameters={"tenant": tenant_id or "", "salt": salt, "digest": digest})

        await self._do(work)

    async def forget_notifications(self, notification_ids: Sequence[str]) -> None:
        """Remove the lines of notifications; returns once they are gone."""

        def work(client: "Client") -> None:
            client.command(self._sql["forget_notifications"], parameters={"ids": list(notification_ids)})

        await self._do(work)

    async def version(self) -> str:
        """The version of the ClickHouse that answers."""
        return await self._do(lambda client: str(client.server_version))

    def _prepare(self, client: "Client") -> None:
        client.command(self._sql["table"].replace(":days", self._days))
        if f"toIntervalDay({self._days})" not in str(client.command(self._sql["engine"])):
            client.command(self._sql["keep_days"].replace(":days", self._days))

    async def _do(self, work: "Callable[[Client], T]") -> T:
        if self._busy:
            raise ArchiveUnavailable("ClickHouse has not answered the last call yet")
        self._busy = True

        def call() -> T:
            try:
                with self._connected() as client:
                    return work(client)
            finally:
                self._busy = False

        try:
            async with asyncio.timeout(self._timeout):
                return await _aside(call)
        except TimeoutError:
            raise ArchiveUnavailable(f"ClickHouse did not answer within {self._timeout:g} s") from None
        except Exception as error:
            raise ArchiveUnavailable(_sentence(error)) from error

    @contextlib.contextmanager
    def _connected(self) -> "Iterator[Client]":
        import clickhouse_connect  # noqa: PLC0415 - an extra, and slow to load

        # The driver logs errors that it also raises: keep only the exception.
        logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
        place = self._place
        if place.scheme == _CHDB:
            # Nobody but the owner looks into a folder that is made here.
            Path(place.folder).mkdir(0o700, parents=True, exist_ok=True)
            client = clickhouse_connect.get_client(interface=_CHDB, path=place.folder)
        else:
            client = clickhouse_connect.get_client(
                interface=place.scheme,
                host=place.host,
                port=place.port or 0,
                username=place.username,
                password=place.password,
                database=place.database or "default",
                connect_timeout=_CONNECT_SECONDS,
                send_receive_timeout=max(1, round(self._timeout)),
                autogenerate_session_id=False,
            )
        try:
            yield client
        finally:
            client.close()


def _aside(call: Callable[[], T]) -> asyncio.Future[T]:
    """Run in a daemon thread, so that an archive that hangs blocks neither the event loop nor the exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(finish: Callable[[], None]) -> None:
        # The caller may have stopped waiting, and the event loop may be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if done.done() else finish())

    def run() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - the driver's, the engine's and the network's have no common root
            tell(partial(done.set_exception, error))
        else:
            tell(partial(done.set_result, result))

    threading.Thread(target=run, name="history", daemon=True).start()
    return done


def _need_packages(place: ArchiveAddress) -> None:
    extra = _CHDB if place.scheme == _CHDB else "clickhouse"
    for package in ("clickhouse_connect", *([_CHDB] if extra == _CHDB else [])):
        if find_spec(package) is None:
            raise ConfigurationError(f"history.url needs the package {package!r}; pip install 'carillon[{extra}]'")


def _columns(endings: Sequence[EndedRoute]) -> tuple[list[str], list[list[Any]]]:
    columns: dict[str, list[Any]] = {
        "notification_id": [one.notification_id for one in endings],
        "route": [one.route for one in endings],
        "notification_type": [one.notification_type for one in endings],
        "producer": [one.producer for one in endings],
        "tenant_id": [one.tenant_id or "" for one in endings],
        "user_id": [one.user_id or "" for one in endings],
        "channel": [one.channel for one in endings],
        "provider": [one.provider for one in endings],
        "lane": [one.lane for one in endings],
        "status": [one.status for one in endings],
        "attempts": [one.attempts for one in endings],
        "error": [one.error or "" for one in endings],
        "accepted_at": [_moment(one.accepted_us) for one in endings],
        "ended_at": [_moment(one.ended_us) for one in endings],
        "delivered_at": [None if one.delivered_us is None else _moment(one.delivered_us) for one in endings],
        "latency_ms": [one.latency_ms for one in endings],
        "version": [one.changed_us for one in endings],
    }
    return list(columns), list(columns.values())


def _moment(unix_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=unix_us)


def _sentence(error: BaseException) -> str:
    """The innermost error: the driver wraps the system's error three times."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    said = str(error).strip().splitlines()
    return f"ClickHouse: {said[0][:300]}" if said else f"ClickHouse: {type(error).__name__}"


def _statements() -> dict[str, str]:
    text = files("carillon.upkeep.history").joinpath("clickhouse.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
