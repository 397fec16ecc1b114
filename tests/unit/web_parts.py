"""Declared endpoints for tests of the toolkit itself."""

from typing import Any

from carillon.web import KNOWN, Answer, Endpoint, Reply, Request


async def nothing_to_receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ok(request: Request) -> Reply:
    return Reply(200, {"params": request.params})


def endpoint(method: str, path: str, **changed: Any) -> Endpoint:
    declared: dict[str, Any] = {
        "method": method,
        "path": path,
        "call": ok,
        "name": f"{method} {path}",
        "summary": "A test's own",
        "answers": (Answer(status=200, description="Fine"),),
        "about": KNOWN,
        **changed,
    }
    return Endpoint(**declared)
