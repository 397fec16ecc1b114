"""The client for synchronous and asyncio programs; it imports nothing of the engine."""

from carillon.client.asking import Asked, Item
from carillon.client.clients import AsyncClient, Client
from carillon.client.errors import Rejected, Unreachable
from carillon.client.wire import Accepted, Attempt, ItemAnswer, Notification, Page, Route
from carillon.domain.explain import Explanation

__all__ = [
    "Accepted",
    "Asked",
    "AsyncClient",
    "Attempt",
    "Client",
    "Explanation",
    "Item",
    "ItemAnswer",
    "Notification",
    "Page",
    "Rejected",
    "Route",
    "Unreachable",
]
