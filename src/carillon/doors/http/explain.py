"""The endpoint that takes the body of a send and answers what would happen; it writes and sends nothing."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from carillon.domain.explain import Explains, Explanation
from carillon.domain.intents import Intent
from carillon.doors.http.wire import SendBody
from carillon.web import About, Answer, Endpoint, Header, Reply, Request

_EXAMPLE = {
    "outcome": "queued",
    "steps": [
        {"step": "mode", "verdict": "pass", "detail": {"mode": "queued"}},
        {"step": "lane", "verdict": "pass", "detail": {"lane": "standard", "queueName": "standard"}},
    ],
    "routes": [
        {
            "routeId": "email:email:ada@example.org",
            "channel": "email",
            "recipient": "email:ada@example.org",
            "outcome": "queued",
            "policy": "*/*",
            "maxAttempts": 2,
            "attempts": [
                {"attempt": 1, "provider": "smtp", "notBefore": 1767225600000},
                {
                    "attempt": 2,
                    "provider": "smtp",
                    "notBefore": 1767225605000,
                    "afterSeconds": 5.0,
                    "atMostSeconds": 6.0,
                },
            ],
            "ends": "dead_letter",
        }
    ],
}


def endpoint(
    call: Callable[[Request], Awaitable[Reply]],
    about: About,
    headers: tuple[Header, ...],
    example: Mapping[str, Any],
) -> Endpoint:
    """The declaration."""
    return Endpoint(
        method="POST",
        path="/api/v1/notifications/explain",
        call=call,
        name="explain",
        summary="Say what would happen",
        description=(
            "Plans the request as a send does, preferences, quiet hours and schedule included, and says of each gate "
            "whether it was passed and what was found there: what would be rendered, the lane, the providers and their "
            "breakers. `routes` lists every attempt of every recipient and channel with its provider and its time, as "
            "if each attempt failed. Nothing is written and nothing is sent."
        ),
        body=SendBody,
        body_examples={"email": dict(example)},
        headers=headers,
        about=about,
        answers=(Answer(status=200, description="What would happen.", kind=Explanation, example=_EXAMPLE),),
        problems=("RECIPIENT_UNRESOLVED", "UNAVAILABLE"),
    )


async def answer(explains: Explains, intent: Intent, *, asked: bool) -> Reply:
    """Explain one request; `asked` says that the caller chose the mode."""
    mode = {"mode": "queued"}
    if intent.synchronous:
        mode = {"mode": "synchronous", "because": "it was asked for" if asked else "of its use case"}
    return Reply(200, await explains.explain(intent, mode))
