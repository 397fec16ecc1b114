"""Bearer tokens: how they are checked is the settings' to say, and every failure has the same answer."""

import re
from collections.abc import Container
from typing import Literal

import msgspec

from carillon.web.problems import Problem

SHARED = "HS256"
MAX_LEEWAY_SECONDS = 30.0
TENANT = re.compile(r"[A-Za-z0-9._:-]{1,64}")

Refusal = Literal[
    "missing",
    "malformed",
    "unknown",
    "forged",
    "expired",
    "premature",
    "overlong",
    "foreign",
    "incomplete",
    "revoked",
    "misplaced",
]
"""What is wrong with a token, a key or a ticket."""


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are checked: with a secret for HS256, with a public key or a set of them for everything else."""

    secret: str | None = None
    algorithm: str = SHARED
    public_key: bytes | None = None
    """PEM."""
    jwks: bytes | None = None
    """A JSON Web Key Set."""
    issuer: str | None = None
    audience: str | None = None
    typ: str = "JWT"
    leeway_seconds: float = MAX_LEEWAY_SECONDS
    max_lifetime_seconds: float = 3600.0
    admin_max_lifetime_seconds: float | None = None
    revoked: Container[str] | None = None
    """The `jti` of tokens that were taken back; with it every token must have one."""


def fits_tenant(name: str) -> bool:
    """Whether a tenant can be called so."""
    return TENANT.fullmatch(name) is not None


class Unauthorized(Problem):
    """The one answer to every failure; its reason is for the operator alone and never part of the answer."""

    def __init__(self, reason: Refusal, message: str = "a valid bearer token is required") -> None:
        super().__init__("UNAUTHORIZED", message, headers={"WWW-Authenticate": "Bearer"})
        self.reason = reason
