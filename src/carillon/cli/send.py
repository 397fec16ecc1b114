"""`carillon send`: send one notification over HTTP, or explain what would happen to it."""

import json
import time
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from carillon.cli.options import AsJson, print_json
from carillon.cli.remote import HERE, RemoteFailed, Token, TokenFile, Url, bearer, call, token_of
from carillon.client.files import attachment
from carillon.client.wire import key_header
from carillon.domain.content.mail import Attachment
from carillon.domain.errors import CarillonError

POLL_SECONDS, WAIT_SECONDS = 0.2, 10.0
_FIELDS = {
    "template": "templateKey",
    "to": "recipient",
    "user": "userId",
    "origin": "serviceOrigin",
    "at": "scheduledFor",
    "channel": "channel",
    "until": "until",
    "after": "after",
    "priority": "priority",
    "locale": "locale",
    "category": "category",
    "time_zone": "timeZone",
    "ttl": "ttl",
    "expires_at": "expiresAt",
    "collapse_key": "collapseKey",
    "synchronous": "synchronous",
}
"""The field of the request for each option that is given to it as it is."""
_MARKS = {"pass": "[green]pass[/]", "stop": "[red]stop[/]", "note": "[yellow]note[/]"}


Data = Annotated[
    list[str] | None, typer.Option("--data", "-d", help="A variable, name=value or order.day=value; repeatable.")
]


Wait = Annotated[
    float | None,
    typer.Option(help="Seconds to wait for the outcome: 10 by default, none with --at. Exit 0 if still queued then."),
]


DryRun = Annotated[bool, typer.Option("--dry-run", help="Explain step by step what would happen; send nothing.")]


Until = Annotated[str | None, typer.Option(help="Try the next channel until delivered, read or acknowledged.")]
CollapseKey = Annotated[
    str | None, typer.Option(help="Replace what still waits for the same recipient under this key.")
]
Digest = Annotated[
    str | None,
    typer.Option(help="Gather with others of the person, e.g. key=comments,window=1h,max=20; or a JSON object."),
]


class SendFailed(CarillonError):
    """The options do not make a notification; the message says how to write them."""


def send(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    template: Annotated[str, typer.Argument(help="The template's key, e.g. welcome.")],
    to: Annotated[str | None, typer.Option("--to", help="An address: email, +phone, push token, URL.")] = None,
    channel: Annotated[str | None, typer.Option(help="push, sms, email, inApp or webhook.")] = None,
    channels: Annotated[str | None, typer.Option(help="Several, in order, e.g. inApp,push,email.")] = None,
    until: Until = None,
    after: Annotated[str | None, typer.Option(help="How long each channel has before the next, e.g. 10m.")] = None,
    data: Data = None,
    user: Annotated[str | None, typer.Option(help="The user's id.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    locale: Annotated[str | None, typer.Option(help="A locale such as en-US.")] = None,
    origin: Annotated[str | None, typer.Option(help="The intent's origin; it selects the retry policy.")] = None,
    category: Annotated[str | None, typer.Option(help="The kind of message, e.g. orders; people choose by it.")] = None,
    at: Annotated[str | None, typer.Option(help="Send not before this time, e.g. 2030-01-01T08:00:00Z.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="recipient: --at has no offset and is on their clock.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Send nothing after this time from now, e.g. 10m or PT10M.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="The same as a time, e.g. 2030-01-01T08:00:00Z.")] = None,
    collapse_key: CollapseKey = None,
    digest: Digest = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object, e.g. a sandbox drill.")] = None,
    attach: Annotated[list[str] | None, typer.Option(help="A file or URL to attach to an email; repeatable.")] = None,
    cc: Annotated[list[str] | None, typer.Option(help="An address that gets a copy of an email; repeatable.")] = None,
    bcc: Annotated[list[str] | None, typer.Option(help="The same, seen by nobody else.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="Where answers to an email go.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key; a fresh one by default.")] = None,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    wait: Wait = None,
    *,
    synchronous: Annotated[bool, typer.Option("--synchronous", help="Deliver while this command waits.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Send one notification and show its outcome; exit 1 if it failed on every route."""
    body = _named(context.params) | _metadata(metadata) | _mail(attach, cc, bcc, reply_to)
    headers = _headers(key) | bearer(token_of(context, token, token_file))
    _send(url, headers, body, None if dry_run else _patience(wait, at), as_json=as_json)


def _headers(key: str | None) -> dict[str, str]:
    return {"Content-Type": "application/json"} | key_header(key or uuid.uuid4().hex)


def _named(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request, from the command's options by their names."""
    channels, digest = said["channels"], said["digest"]
    fields = {field: said[option] for option, field in _FIELDS.items() if said[option] not in {None, False}}
    fields |= {} if channels is None else {"channels": channels.split(",")}
    fields |= {} if digest is None else {"digest": _digest(digest)}
    return fields | {"data": variables(said["data"] or [])}


def _patience(wait: float | None, at: str | None) -> float:
    return (0.0 if at else WAIT_SECONDS) if wait is None else wait


def _send(url: str, headers: dict[str, str], body: dict[str, Any], wait: float | None, *, as_json: bool) -> None:
    """Send, and wait for the outcome so long; without a time only explain."""
    if wait is None:
        _show_explanation(call(f"{url}/api/v1/notifications/explain", headers, body), as_json=as_json)
        return
    accepted = call(f"{url}/api/v1/notifications/send", headers, body)
    story = accepted
    if wait > 0 and accepted["status"] == "queued":
        with Console(stderr=True, emoji=False).status("Accepted; waiting for the outcome…"):
            story = _follow(url, headers, accepted, wait)
    if as_json:
        print_json(story)
    else:
        _show(accepted, story)
    if _dead(story) or accepted["status"] == "skipped":
        raise typer.Exit(1)


def variables(pairs: list[str]) -> dict[str, Any]:
    """Variables from `name=value` pairs; `order.day=Friday` fills {{order.day}}."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        *path, last = name.split(".")
        if not found or not last or not all(path):
            raise SendFailed(f"--data {pair!r}: write it as name=value")
        inside: Any = given
        for step in path:
            inside = inside.setdefault(step, {}) if isinstance(inside, dict) else None
        if not isinstance(inside, dict) or isinstance(inside.get(last), dict):
            raise SendFailed(f"--data {pair!r}: {name} cannot be a value and hold others")
        inside[last] = value
    return given


def _mail(
    attach: list[str] | None, cc: list[str] | None, bcc: list[str] | None, reply_to: str | None
) -> dict[str, Any]:
    files = msgspec.to_builtins([_file(source) for source in attach or []])
    found = {"attachments": files, "cc": cc, "bcc": bcc, "replyTo": reply_to}
    return {name: value for name, value in found.items() if value}


def _digest(text: str) -> dict[str, Any]:
    """The digest of `key=comments,window=1h,max=20`, or of a JSON object: a cron line may have commas."""
    try:
        if text.lstrip().startswith("{"):
            return dict(json.loads(text))
        said: dict[str, Any] = dict(pair.split("=", 1) for pair in text.split(","))
        return said | {"max": int(said["max"])} if "max" in said else said
    except ValueError:
        raise SendFailed(f"--digest {text!r}: write it as key=comments,window=1h,max=20") from None


def _file(source: str) -> Attachment:
    try:
        return attachment(source)
    except OSError as error:
        raise SendFailed(f"--attach {source}: {error.strerror or error}") from None


def _metadata(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return {"metadata": json.loads(text)}
    except ValueError as error:
        raise SendFailed(f"--metadata is not JSON: {error}") from None


def _follow(url: str, headers: dict[str, str], accepted: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The story once it is finished, or as far as it could be read; what was accepted stays accepted."""
    path = f"{url}/api/v1/notifications/{accepted['notificationId']}?include=attempts"
    until = time.monotonic() + seconds
    story, trouble = accepted, ""
    while story["status"] == "queued":
        try:
            story, trouble = call(path, headers), ""
        except RemoteFailed as error:
            trouble = f" ({error})"
            if not error.passing:
                break
        if time.monotonic() >= until:
            break
        time.sleep(POLL_SECONDS)
    if story["status"] == "queued":
        waited = f"its outcome is not known{trouble}" if trouble else f"still queued after {seconds:g} s"
        typer.echo(f"{waited}; it is accepted and goes on without this command", err=True)
    return story


def _dead(story: dict[str, Any]) -> bool:
    """Whether every route failed or was skipped."""
    ends = {route["status"] for route in story.get("routes", [])}
    return "failed" in ends and ends <= {"failed", "skipped"}


def _show(accepted: dict[str, Any], story: dict[str, Any]) -> None:
    console = Console(emoji=False)
    console.print(
        f"{accepted['notificationId']}  [bold]{story['status']}[/]  (queue {accepted.get('queueName', 'none')})"
    )
    for skipped in accepted.get("skipped", []):
        console.print(f"  {skipped['routeId']}: {_held_by(skipped)}", markup=False)
    for route in story.get("routes", []):
        spent = f"{route['attemptCount']} of {route['maxAttempts']} attempts"
        why = f": {_held_by(route['suppression'])}" if route.get("suppression") else ""
        console.print(f"  {route['routeId']}: {route['status']}, {spent}{why}", markup=False)
        for attempt in route.get("attempts", []):
            tail = f": {attempt['error']}" if attempt.get("error") else ""
            took = f"in {attempt['durationMs']:.0f} ms"
            console.print(
                f"    #{attempt['number']} {attempt['provider']} {attempt['outcome']} {took}{tail}", markup=False
            )


def _held_by(suppression: dict[str, Any]) -> str:
    if "because" in suppression:
        return f"{suppression['reason']}: {suppression['because']}"
    end = f"until {suppression['until']}" if suppression.get("until") else "until it is lifted"
    return f"the address is suppressed ({suppression['kind']}) {end}"


def _show_explanation(explanation: dict[str, Any], *, as_json: bool) -> None:
    """Print what would happen, gate by gate; exit 1 if nothing would be sent, so that scripts can ask."""
    if as_json:
        print_json(explanation)
    else:
        _print_explanation(explanation)
    if explanation["outcome"] in {"rejected", "failed", "skipped"}:
        raise typer.Exit(1)


def _print_explanation(explanation: dict[str, Any]) -> None:
    console = Console(emoji=False)
    for step in explanation["steps"]:
        console.print(f"{_MARKS[step['verdict']]}  [bold]{step['step']}[/]", highlight=False)
        for name, value in step["detail"].items():
            for line in _lines(name, value):
                console.print(f"        {line}", markup=False, highlight=False)
    # The gates above show the first route; the others differ from it in their attempts.
    for route in explanation.get("routes", [])[1:]:
        console.print(f"also  [bold]{escape(route['routeId'])}[/]", highlight=False)
        for name in ("outcome", "policy", "attempts", "ends", "because"):
            for line in _lines(name, route.get(name)):
                console.print(f"        {line}", markup=False, highlight=False)
    why = f": {explanation['message']}" if explanation.get("message") else ""
    console.print(f"would be {explanation['outcome']}{why}", markup=False, highlight=False)


def _lines(name: str, value: object) -> list[str]:
    if name == "attempts" and isinstance(value, list):
        return _foreseen(value)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [f"{name}: " + ", ".join(f"{key} {inner}" for key, inner in each.items()) for each in value]
    return [f"{name}: {line}" for line in str("none" if value is None else value).splitlines() or [""]]


def _foreseen(attempts: list[dict[str, Any]]) -> list[str]:
    """The attempts that would follow if each failed; the number of the one before means that none is spent."""
    found: list[str] = []
    number = 0
    for attempt in attempts:
        after, most = attempt.get("afterSeconds"), attempt.get("atMostSeconds")
        to = "" if most in {None, after} else f" to {most:g}"
        wait = f"after {after:g}{to} s" if after else "at once"
        if attempt["attempt"] == number:
            found.append(f"then {attempt['provider']} {wait}, and so on: a probe of an open breaker spends no attempt")
            break
        number = attempt["attempt"]
        found.append(f"attempt {number}: {attempt['provider']}, {wait}")
    return found
