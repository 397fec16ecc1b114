"""Whose token this is: under one algorithm that the settings fix and no token chooses.

Loaded only where tokens are asked for: what it needs takes an eighth of a start.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

import jwt

from carillon.domain.errors import ConfigurationError
from carillon.web.auth import MAX_LEEWAY_SECONDS, SHARED, TENANT, JwtSettings, Refusal, Unauthorized
from carillon.web.request import Caller, Proof
from carillon.web.token_keys import KID, TokenKey, key_set, public_key, secret_key

ROLES = frozenset({"admin", "user"})
_MAX_TOKEN_BYTES = 8192
_SUBJECT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")
_OURS_TYPE = "jwt"
# Claims are looked at behind the signature: what is said of them is never said of a token that anybody could have made.
_REASONS: dict[type[Exception], Refusal] = {
    jwt.ExpiredSignatureError: "expired",
    jwt.ImmatureSignatureError: "premature",
    jwt.InvalidAlgorithmError: "forged",
    jwt.InvalidAudienceError: "foreign",
    jwt.InvalidIssuerError: "foreign",
    jwt.InvalidSignatureError: "forged",
    jwt.MissingRequiredClaimError: "incomplete",
}


class Guard:
    """Turns a token into a caller; every failure looks the same from outside."""

    def __init__(self, settings: JwtSettings) -> None:
        self._keys = _keys(settings)
        self._only = next(iter(self._keys.values())) if len(self._keys) == 1 else None
        if not 0 <= settings.leeway_seconds <= MAX_LEEWAY_SECONDS:
            raise ConfigurationError(f"auth.leeway_seconds: is between 0 and {MAX_LEEWAY_SECONDS:g}")
        self._settings = settings
        self._typ = _type_of(settings.typ)
        self._algorithms = [settings.algorithm]
        required = ["exp", "iat", "sub"]
        required += ["iss"] if settings.issuer else []
        required += ["aud"] if settings.audience else []
        required += [] if settings.revoked is None else ["jti"]
        self._options: Any = {
            "require": required,
            "verify_aud": settings.audience is not None,
            "verify_iss": settings.issuer is not None,
            "strict_aud": settings.audience is not None,
        }

    def caller(self, token: bytes) -> Caller:
        """The caller a valid token names; 401 otherwise, always with the same body."""
        if not token or len(token) > _MAX_TOKEN_BYTES:
            raise Unauthorized("malformed" if token else "missing")
        try:
            return self._read(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unauthorized(_REASONS.get(type(error), "malformed")) from None

    def proof(self, token: bytes) -> Proof:
        """How long a token that was believed is to be; 401 when it is not any more."""
        self.caller(token)
        claims = jwt.decode(token, options={"verify_signature": False})
        token_id = claims.get("jti")
        return Proof(
            int((float(claims["exp"]) + self._settings.leeway_seconds) * 1000),
            token_id if isinstance(token_id, str) else None,
        )

    def _read(self, token: bytes) -> Caller:
        claims = jwt.decode(
            token,
            self._key_for(jwt.get_unverified_header(token)),
            algorithms=self._algorithms,
            issuer=self._settings.issuer,
            audience=self._settings.audience,
            leeway=self._settings.leeway_seconds,
            options=self._options,
        )
        return self._caller_of(claims)

    def _key_for(self, head: Mapping[str, Any]) -> TokenKey:
        """By the `kid` alone; keys and places of keys that a token brings along are not looked at."""
        kind = head.get("typ", "JWT" if self._typ == _OURS_TYPE else None)
        if "crit" in head or not isinstance(kind, str) or _type_of(kind) != self._typ:
            raise Unauthorized("malformed")
        kid = head.get("kid")
        if kid is not None and not KID.fullmatch(kid):
            raise Unauthorized("malformed")
        key = self._keys.get(kid) if self._settings.jwks is not None and kid is not None else self._only
        if key is None:
            raise Unauthorized("unknown")
        return key

    def _caller_of(self, claims: dict[str, Any]) -> Caller:
        role = claims.get("role")
        # A role we do not know gives no rights beyond the smallest.
        role = role if role in ROLES else "user"
        self._check_times(float(claims["iat"]), float(claims["exp"]), role)
        revoked = self._settings.revoked
        if revoked is not None and (not isinstance(claims["jti"], str) or claims["jti"] in revoked):
            raise Unauthorized("revoked")
        tenant = claims.get("tenant_id")
        if not _SUBJECT.fullmatch(claims["sub"]) or not (tenant is None or TENANT.fullmatch(tenant)):
            raise Unauthorized("malformed")
        return Caller(claims["sub"], role, tenant)

    def _check_times(self, issued: float, expires: float, role: str) -> None:
        settings = self._settings
        longest = settings.max_lifetime_seconds
        if role == "admin" and settings.admin_max_lifetime_seconds is not None:
            longest = min(longest, settings.admin_max_lifetime_seconds)
        leeway = settings.leeway_seconds
        if issued > time.time() + leeway:
            raise Unauthorized("premature")
        if expires - issued > longest + leeway:
            raise Unauthorized("overlong")


def _keys(settings: JwtSettings) -> dict[str | None, TokenKey]:
    given = [settings.secret, settings.public_key, settings.jwks]
    if sum(one is not None for one in given) != 1:
        raise ConfigurationError("auth: give one of secret, public_key_file and jwks_file")
    if (settings.secret is not None) != (settings.algorithm == SHARED):
        raise ConfigurationError(f"auth.algorithm: {SHARED} takes auth.secret, every other a public key")
    if settings.secret is not None:
        return {None: secret_key(settings.secret)}
    if settings.public_key is not None:
        return {None: public_key(settings.public_key, settings.algorithm)}
    found: dict[str | None, TokenKey] = {}
    found.update(key_set(settings.jwks or b"", settings.algorithm))
    return found


def _type_of(typ: str) -> str:
    return typ.lower().removeprefix("application/")
