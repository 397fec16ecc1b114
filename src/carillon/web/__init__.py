"""The toolkit under every HTTP endpoint: declare, limit, decode, answer, document, listen."""

from carillon.web.application import app
from carillon.web.auth import JwtSettings
from carillon.web.declare import Answer, Endpoint, Header
from carillon.web.listening import ServerSettings
from carillon.web.probe_surface import ProbeServer
from carillon.web.problems import Problem
from carillon.web.request import Caller, Reply, Request
from carillon.web.server import NoServer, Server
from carillon.web.settings import WebSettings
from carillon.web.streaming import Outlet, PeerGone

__all__ = [
    "Answer",
    "Caller",
    "Endpoint",
    "Header",
    "JwtSettings",
    "NoServer",
    "Outlet",
    "PeerGone",
    "ProbeServer",
    "Problem",
    "Reply",
    "Request",
    "Server",
    "ServerSettings",
    "WebSettings",
    "app",
]
