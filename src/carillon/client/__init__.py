"""The client for synchronous and asyncio programs; it imports nothing of the engine."""

from carillon.client.answers import (
    Accepted,
    Attempt,
    ErasureReport,
    ForeignPlace,
    ItemAnswer,
    Notification,
    Page,
    Route,
    SkippedRedrive,
    SkippedRoute,
    SuppressedAddress,
)
from carillon.client.clients import AsyncClient, Client
from carillon.client.exchange import Patience, Rejected, Unreachable
from carillon.client.files import attachment
from carillon.client.wire import ApiRequest, Item
from carillon.domain.admin import WaitingCount
from carillon.domain.content.mail import Attachment, Invitation
from carillon.domain.content.parts import InAppAction, InAppParts, PushParts
from carillon.domain.explain import Explanation
from carillon.version import old_names

__all__ = [
    "Accepted",
    "ApiRequest",
    "AsyncClient",
    "Attachment",
    "Attempt",
    "Client",
    "ErasureReport",
    "Explanation",
    "ForeignPlace",
    "InAppAction",
    "InAppParts",
    "Invitation",
    "Item",
    "ItemAnswer",
    "Notification",
    "Page",
    "Patience",
    "PushParts",
    "Rejected",
    "Route",
    "SkippedRedrive",
    "SkippedRoute",
    "SuppressedAddress",
    "Unreachable",
    "WaitingCount",
    "attachment",
]

__getattr__ = old_names(__name__, {"Asked": ApiRequest})
