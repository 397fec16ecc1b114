"""The toolkit under every HTTP endpoint: declare, limit, decode, answer, document, listen."""

from carillon.web.about import (
    ADMINISTRATORS,
    EVERYBODY,
    KNOWN,
    OPERATORS,
    PROOF,
    SERVICES,
    WELCOME,
    About,
    Callers,
    Found,
    Owned,
    Reach,
    in_body,
    in_path,
    in_query,
)
from carillon.web.application import app
from carillon.web.auth import JwtSettings
from carillon.web.endpoint import LONGEST_PERSON, Answer, Endpoint, Header
from carillon.web.h11_server import ProbeServer
from carillon.web.problems import Problem
from carillon.web.request import Caller, RawBody, Reply, Request
from carillon.web.server import NoServer, Server
from carillon.web.settings import ServerSettings, WebSettings
from carillon.web.streaming import BrokenOff, Outlet, PeerGone

__all__ = [
    "ADMINISTRATORS",
    "EVERYBODY",
    "KNOWN",
    "LONGEST_PERSON",
    "OPERATORS",
    "PROOF",
    "SERVICES",
    "WELCOME",
    "About",
    "Answer",
    "BrokenOff",
    "Caller",
    "Callers",
    "Endpoint",
    "Found",
    "Header",
    "JwtSettings",
    "NoServer",
    "Outlet",
    "Owned",
    "PeerGone",
    "ProbeServer",
    "Problem",
    "RawBody",
    "Reach",
    "Reply",
    "Request",
    "Server",
    "ServerSettings",
    "WebSettings",
    "app",
    "in_body",
    "in_path",
    "in_query",
]
