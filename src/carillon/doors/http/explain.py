"""The same body as a send, answered with what would happen: nothing is written, nothing is sent."""

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
            "Walks the gates of a real send in their order and says of each whether it was passed, with what was found "
            "there: what would be rendered, the lane, every attempt with its wait, the providers and their breakers. "
            "Nothing is written and nothing is sent."
        ),
        body=SendBody,
        body_examples={"email": dict(example)},
        headers=headers,
        about=about,
        answers=(Answer(status=200, description="What would happen.", kind=Explanation, example=_EXAMPLE),),
        problems=("RECIPIENT_UNRESOLVED", "UNAVAILABLE"),
    )


async def answer(explains: Explains, intent: Intent, *, asked: bool) -> Reply:
    """Explain one request; `asked` says that its mode was the caller's own wish."""
    mode = {"mode": "queued"}
    if intent.synchronous:
        mode = {"mode": "synchronous", "because": "it was asked for" if asked else "of its use case"}
    return Reply(200, await explains.explain(intent, mode))
