"""The declarations of the administrators' endpoints."""

from typing import Any, Protocol

from carillon.upkeep.api.admin_wire import (
    ActionPage,
    AuditQuery,
    FailedPage,
    FailedQuery,
    ProviderList,
    RedriveFailedBody,
    RedrivenFailed,
    RedrivePage,
    RedrivesQuery,
    Retried,
    RetryBody,
)
from carillon.web import Answer, Endpoint, Header, Reply, Request

_PATH = "/api/v1/admin"
_FOR_ADMINISTRATORS: dict[str, Any] = {"tag": "Administration", "role": "admin"}
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_OVERRIDE = Header("X-Admin-Override", "Must be `true`: this changes deliveries by hand.", r"^[Tt][Rr][Uu][Ee]\Z")

_REDRIVES = {
    "count": {"reason": "SendGrid was down", "channel": "email", "dryRun": True},
    "slowly": {"reason": "SendGrid was down", "channel": "email", "ratePerSecond": 20},
    "chosen": {
        "reason": "This one asked",
        "items": [{"notificationId": _EXAMPLE_ID, "routeId": "email:email:ada@example.org"}],
    },
}


class Answering(Protocol):
    """What answers each of them."""

    async def retry(self, request: Request) -> Reply: ...
    async def failed(self, request: Request) -> Reply: ...
    async def redrive(self, request: Request) -> Reply: ...
    async def redrives(self, request: Request) -> Reply: ...
    async def providers(self, request: Request) -> Reply: ...
    async def audit(self, request: Request) -> Reply: ...


def declared(office: Answering) -> list[Endpoint]:
    """All of them."""
    return [*_changing(office), _coming(office), *_reading(office)]


def _changing(office: Answering) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path=f"{_PATH}/notifications/{{id}}/retry",
            call=office.retry,
            name="retryNotification",
            summary="Try a failed notification again",
            description="It keeps its id and its history and gets a fresh budget. A forced provider is called first, "
            "whatever its breaker says.",
            headers=(_OVERRIDE,),
            path_examples={"id": _EXAMPLE_ID},
            body=RetryBody,
            body_examples={"forced": {"reason": "Customer escalation", "forceProvider": "AWS_SNS"}},
            answers=(Answer(status=200, description="It waits for its next attempt", kind=Retried),),
            problems=("ADMIN_OVERRIDE_REQUIRED", "UNKNOWN_PROVIDER", "NOT_RETRYABLE"),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/redrive",
            call=office.redrive,
            name="redriveFailed",
            summary="Try every failed notification again that matches",
            description="`dryRun` only counts. `items` names up to 1000 of them one by one. `ratePerSecond` gives each "
            "its turn, so that a provider that is just back is not flooded; the turns are kept in the ledger.",
            headers=(_OVERRIDE,),
            body=RedriveFailedBody,
            body_examples=_REDRIVES,
            answers=(Answer(status=200, description="What matched and what was redriven", kind=RedrivenFailed),),
            problems=("ADMIN_OVERRIDE_REQUIRED",),
            **_FOR_ADMINISTRATORS,
        ),
    ]


def _coming(office: Answering) -> Endpoint:
    return Endpoint(
        method="GET",
        path=f"{_PATH}/redrives",
        call=office.redrives,
        name="listRedrives",
        summary="Show how far each redrive came, newest first",
        query=RedrivesQuery,
        answers=(Answer(status=200, description="One page", kind=RedrivePage),),
        **_FOR_ADMINISTRATORS,
    )


def _reading(office: Answering) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/failed-notifications",
            call=office.failed,
            name="listFailedNotifications",
            summary="List what was given up, newest first",
            query=FailedQuery,
            answers=(Answer(status=200, description="One page", kind=FailedPage),),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/providers",
            call=office.providers,
            name="listProviders",
            summary="Show every provider with its breaker and its newest attempts",
            answers=(Answer(status=200, description="Every provider in use", kind=ProviderList),),
            **_FOR_ADMINISTRATORS,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/audit",
            call=office.audit,
            name="listActions",
            summary="List what operators did, newest first",
            query=AuditQuery,
            answers=(Answer(status=200, description="One page", kind=ActionPage),),
            **_FOR_ADMINISTRATORS,
        ),
    ]
