"""How the command line writes numbers of things."""


def counted(number: int, thing: str, several: str | None = None) -> str:
    """`1 dead letter`, `2,600 dead letters`; `several` for a plural that does not end with s."""
    return f"{number:,} {thing if number == 1 else several or f'{thing}s'}"


VERDICTS = {
    "bury": "given up",
    "retry": "tried again later",
    "fail_over": "failed over",
    "defer": "put off",
    "skip": "skipped",
    "finish": "delivered",
}
"""What a verdict means to a person, as the console says it."""

EVENTS = {
    "address_suppressed": "an address of {channel} is suppressed, {kind}: {reason}",
    "calls_paused": "{what} is paused by {by}: {reason}",
    "calls_resumed": "{what} is not paused any more",
    "endpoint_disabled": "{endpoint} ({provider}) has failed for days and is disabled: its routes become dead letters",
    "endpoint_enabled": "{endpoint} ({provider}) is enabled again by {by}",
    "route_suppressed": "{notification_id} {route_id} skipped: its address is suppressed, {kind}",
    "trouble": "{where} failed and will try again: {error}",
}
"""What happened, in a sentence, by the event's name; attempts and breakers have sentences of their own."""
