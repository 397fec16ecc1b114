"""The ASGI toolkit under every HTTP endpoint of ours: declare, limit, decode, answer, document."""

from carillon.web.application import WebSettings, app
from carillon.web.auth import JwtSettings
from carillon.web.declare import Answer, Endpoint, Header
from carillon.web.problems import Problem
from carillon.web.request import Caller, Reply, Request
from carillon.web.server import Server, ServerSettings

__all__ = [
    "Answer",
    "Caller",
    "Endpoint",
    "Header",
    "JwtSettings",
    "Problem",
    "Reply",
    "Request",
    "Server",
    "ServerSettings",
    "WebSettings",
    "app",
]
