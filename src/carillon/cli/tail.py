"""`carillon tail`: notifications and troubles of a running Carillon, one line each, as they happen."""

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import fill
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from rich.console import Console

from carillon.cli.options import print_json
from carillon.cli.remote import HERE, Remote, RemoteFailed, Token, TokenFile, Url, token_of
from carillon.cli.top import told_line

PAGE, PAGES = 100, 10
REMEMBERED = 5000
"""How many notifications the command remembers; it reports no changes of older ones."""
_RECONNECT_SECONDS = 3.0
_INDENT = " " * 10
"""As wide as the time of a line and what stands behind it."""
_FILTERED_HERE = frozenset({"status", "provider", "tenantId"})
_STYLES = {"delivered": "green", "opened": "green", "sent": "green", "failed": "bold red", "skipped": "dim"}
_GOOD = {status for status, style in _STYLES.items() if style == "green"}
Told = dict[str, Any]


class Only(StrEnum):
    """What to follow, if not both."""

    NOTIFICATIONS = "notifications"
    EVENTS = "events"


def tail(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    status: Annotated[str | None, typer.Option(help="Only notifications in this state, such as failed.")] = None,
    template: Annotated[str | None, typer.Option("--template", "--type", help="Only this template.")] = None,
    person: Annotated[str | None, typer.Option("--person", "--user", help="Only this person, by user id.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only what this provider carries.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    only: Annotated[Only | None, typer.Option(help="notifications, or events: retries, failures, breakers.")] = None,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=PAGE, help="Begin with this many of the newest notifications.")
    ] = 10,
    lines: Annotated[int | None, typer.Option(min=1, help="End after this many lines.")] = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two polls.")] = 1.0,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line, for machines.")] = False,
) -> None:
    """Follow notifications, their outcomes and errors until Ctrl-C."""
    remote = Remote(url, token_of(context, token, token_file))
    wanted = {"channel": channel, "status": status, "templateKey": template, "userId": person}
    wanted |= {"provider": provider, "tenantId": tenant}
    filters = {name: value for name, value in wanted.items() if value is not None}
    console = Console(emoji=False)
    try:
        for number, told in enumerate(_both(remote, filters, only, last, every), 1):
            _show(console, told, as_json=as_json)
            if number == lines:
                return
    except KeyboardInterrupt:
        return


class Watch:
    """Prints each notification when it appears, and again when its state changes."""

    def __init__(self, remote: Remote, filters: dict[str, str]) -> None:
        self._remote = remote
        # Filter states here: with the server's filter a notification would vanish when its state changes. The server
        # has no filter for the two others.
        self._here = {name: value for name, value in filters.items() if name in _FILTERED_HERE}
        self._filters = {name: value for name, value in filters.items() if name not in _FILTERED_HERE}
        self._known: OrderedDict[str, str] = OrderedDict()
        self._followed: OrderedDict[str, None] = OrderedDict()
        self._away = False

    def begin(self, last: int) -> list[Told]:
        """The newest notifications, oldest first; older ones count as printed."""
        items, _ = self._page(None)
        told = self._chosen(self._news(items))
        return told[-last:] if last else []

    def look(self) -> list[Told]:
        """What is new since the last poll, oldest first; waits for a server that is away."""
        try:
            found = self._look()
        except RemoteFailed as error:
            if not error.passing:
                raise
            if not self._away:
                typer.echo(str(error), err=True)
            self._away = True
            return []
        self._away = False
        return found

    def _look(self) -> list[Told]:
        items: list[Told] = []
        cursor: str | None = None
        for _ in range(PAGES):
            found, cursor = self._page(cursor)
            items += found
            if cursor is None or any(one["id"] in self._known for one in found):
                break
        return self._chosen(self._news(items))

    def fits(self, told: Told) -> bool:
        """Whether an event is about a notification that is followed."""
        return told.get("notification_id") in self._followed

    def _chosen(self, news: list[Told]) -> list[Told]:
        asked = {name: value for name, value in self._here.items() if name != "status"}
        chosen = [one for one in news if all(value in _values(one, name) for name, value in asked.items())]
        for one in chosen:
            self._followed[one["id"]] = None
        while len(self._followed) > REMEMBERED:
            self._followed.popitem(last=False)
        return [one for one in chosen if self._here.get("status") in {None, one["status"]}]

    def _page(self, cursor: str | None) -> tuple[list[Told], str | None]:
        # The total is not shown: counting it would cost more than the page in a large ledger.
        place = {"count": "capped"} if cursor is None else {"cursor": cursor}
        query = urlencode({**self._filters, **place, "pageSize": PAGE})
        found = self._remote.get(f"/api/v1/notifications?{query}")
        # A server of an earlier release sends no cursor.
        return list(found["items"]), found.get("nextCursor")

    def _news(self, items: list[Told]) -> list[Told]:
        news = []
        for one in reversed(items):
            if self._known.get(one["id"]) != one["status"]:
                self._known[one["id"]] = one["status"]
                news.append({"kind": "notification", **one})
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return news


def _both(remote: Remote, filters: dict[str, str], only: Only | None, last: int, every: float) -> Iterator[Told]:
    if only is Only.EVENTS and "tenantId" in filters:
        raise RemoteFailed("--tenant: events name no tenant; leave --only out, and those of the tenant are shown")
    heard: queue.SimpleQueue[Told] = queue.SimpleQueue()
    watch = None if only is Only.EVENTS else Watch(remote, filters)
    if watch is not None:
        yield from watch.begin(last)
    if only is not Only.NOTIFICATIONS:
        if only is Only.EVENTS:
            # A caller without permission gets its error before the stream starts.
            remote.get("/api/v1/console/overview")
        threading.Thread(target=_listen, args=(remote, heard), daemon=True).start()
    while True:
        until = time.monotonic() + every
        while (left := until - time.monotonic()) > 0:
            try:
                told = heard.get(timeout=left)
            except queue.Empty:
                break
            # An event names no tenant: its notification does.
            if _fits(told, filters) and ("tenantId" not in filters or (watch is not None and watch.fits(told))):
                yield told
        if watch is not None:
            yield from watch.look()


def _values(one: Told, name: str) -> list[Any]:
    """What a notification says under the name of a filter."""
    return list(one.get("providerNames") or []) if name == "provider" else [one.get(name)]


def _listen(remote: Remote, heard: "queue.SimpleQueue[Told]") -> None:
    while True:
        try:
            for tick in remote.events("/api/v1/console/live"):
                for told in tick["recent"]:
                    heard.put({"kind": "event", **told})
        except RemoteFailed as error:
            if not error.passing:
                # The caller is no administrator, or the server has no console: follow notifications only.
                return
        time.sleep(_RECONNECT_SECONDS)


def _fits(told: Told, filters: dict[str, str]) -> bool:
    named = {"channel": "channel", "templateKey": "notification_type", "userId": "user_id", "provider": "provider"}
    return all(told.get(named[name]) == value for name, value in filters.items() if name in named)


def _show(console: Console, told: Told, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    elif told["kind"] == "event":
        _line(console, told_line(told), "yellow")
    else:
        when = datetime.fromisoformat(_latest(told)).astimezone(UTC).strftime("%H:%M:%S")
        about = (
            f"{told['id']} {told['templateKey']} {told['channel'] or ''} {told['recipient'] or told['userId'] or ''}"
        )
        # What was delivered after a redrive keeps the error of its first life; it is no news any more.
        why = f": {told['lastError']}" if told["lastError"] and told["status"] not in _GOOD else ""
        style = _STYLES.get(told["status"])
        _line(console, f"{when}  {told['status']:9} {about}{why}", style)


def _line(console: Console, line: str, style: str | None) -> None:
    """One line in a pipe; on a terminal a line that is too long goes on under its beginning, between two words."""
    if console.is_terminal:
        line = fill(line, console.width, subsequent_indent=_INDENT, break_on_hyphens=False, drop_whitespace=True)
    console.print(line, markup=False, highlight=False, style=style, soft_wrap=True)


def _latest(told: Told) -> str:
    names = ("openedAt", "deliveredAt", "failedAt", "sentAt", "lastAttemptAt", "createdAt")
    return next(str(told[name]) for name in names if told.get(name))
