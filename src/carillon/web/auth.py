"""Who is asking: bearer tokens under one fixed algorithm, or nobody in particular."""

import re
import time
from typing import Any

import jwt
import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.web.problems import Problem
from carillon.web.request import Caller

_MIN_SECRET_BYTES = 32
_MAX_TOKEN_BYTES = 8192
_ALGORITHM = "HS256"
_ROLES = frozenset({"admin", "user"})
_KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TENANT = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_SUBJECT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are checked."""

    secret: str
    issuer: str | None = None
    audience: str | None = None
    leeway_seconds: float = 30.0
    max_lifetime_seconds: float = 3600.0


class Guard:
    """Turns the Authorization header into a caller; every failure looks the same from outside."""

    def __init__(self, settings: JwtSettings) -> None:
        self._key = settings.secret.encode()
        if len(self._key) < _MIN_SECRET_BYTES:
            raise ConfigurationError(f"JWT_SECRET_KEY must have at least {_MIN_SECRET_BYTES} bytes")
        self._settings = settings
        required = ["exp", "iat", "sub"]
        required += ["iss"] if settings.issuer else []
        required += ["aud"] if settings.audience else []
        self._options: Any = {
            "require": required,
            "verify_aud": settings.audience is not None,
            "verify_iss": settings.issuer is not None,
            "strict_aud": settings.audience is not None,
        }

    def caller(self, authorization: bytes | None) -> Caller:
        """The caller a valid token names; 401 otherwise, always with the same body."""
        scheme, _, token = (authorization or b"").partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token or len(token) > _MAX_TOKEN_BYTES:
            raise _unauthorized()
        try:
            return self._read(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise _unauthorized() from None

    def _read(self, token: bytes) -> Caller:
        head = jwt.get_unverified_header(token)
        if head.get("typ", "JWT") != "JWT" or "crit" in head:
            raise _unauthorized()
        kid = head.get("kid")
        if kid is not None and not _KID.fullmatch(kid):
            raise _unauthorized()
        claims = jwt.decode(
            token,
            self._key,
            algorithms=[_ALGORITHM],
            issuer=self._settings.issuer,
            audience=self._settings.audience,
            leeway=self._settings.leeway_seconds,
            options=self._options,
        )
        return self._caller_of(claims)

    def _caller_of(self, claims: dict[str, Any]) -> Caller:
        issued, expires = float(claims["iat"]), float(claims["exp"])
        leeway = self._settings.leeway_seconds
        if issued > time.time() + leeway or expires - issued > self._settings.max_lifetime_seconds + leeway:
            raise _unauthorized()
        tenant = claims.get("tenant_id")
        if not _SUBJECT.fullmatch(claims["sub"]) or not (tenant is None or _TENANT.fullmatch(tenant)):
            raise _unauthorized()
        role = claims.get("role")
        # A role we do not know gives no rights beyond the smallest.
        return Caller(claims["sub"], role if role in _ROLES else "user", tenant)


def _unauthorized() -> Problem:
    return Problem("UNAUTHORIZED", "a valid bearer token is required", headers={"WWW-Authenticate": "Bearer"})
