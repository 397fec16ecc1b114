"""Bearer tokens: the keys they are checked with, and who a valid token names.

Imported only where tokens are required, because the cryptography library takes an eighth of the start.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from carillon.domain.errors import ConfigurationError
from carillon.web.auth import MAX_LEEWAY_SECONDS, SHARED, TENANT, JwtSettings, Refusal, Unauthorized
from carillon.web.request import Caller, Proof

TokenKey: TypeAlias = bytes | rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

KID = re.compile(r"[A-Za-z0-9+/_-]{1,64}={0,2}")
_MIN_SECRET_BYTES = 32
_MIN_DISTINCT = 8
_MIN_RSA_BITS = 2048
_PERIODS = re.compile(rb"(.{1,16}?)\1+", re.DOTALL)
# Out of manuals, READMEs and jwt.io; compared without signs between the letters.
_EXAMPLES = (
    "changeme",
    "changethis",
    "replaceme",
    "replacethis",
    "yoursecret",
    "your256bitsecret",
    "yourjwtsecret",
    "supersecret",
    "mysecretkey",
    "secretkeyhere",
    "astringsecretatleast256bitslong",
    "thisisasecret",
    "donotuseinproduction",
    "insecure",
    "example",
)
_PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi", "k"})
ROLES = frozenset({"admin", "service", "user"})
_MAX_TOKEN_BYTES = 8192
_SUBJECT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")
_OURS_TYPE = "jwt"
# PyJWT checks claims after the signature, so these reasons never describe an unsigned token.
_REASONS: dict[type[Exception], Refusal] = {
    jwt.ExpiredSignatureError: "expired",
    jwt.ImmatureSignatureError: "premature",
    jwt.InvalidAlgorithmError: "forged",
    jwt.InvalidAudienceError: "foreign",
    jwt.InvalidIssuerError: "foreign",
    jwt.InvalidSignatureError: "forged",
    jwt.MissingRequiredClaimError: "incomplete",
}


def secret_key(secret: str) -> bytes:
    """A shared secret as it is used; ConfigurationError for one that can be guessed."""
    key = secret.encode()
    if len(key) < _MIN_SECRET_BYTES:
        raise ConfigurationError(f"auth.secret (JWT_SECRET_KEY): must have at least {_MIN_SECRET_BYTES} bytes")
    plain = re.sub(r"[^a-z0-9]", "", secret.lower())
    if any(example in plain for example in _EXAMPLES):
        raise ConfigurationError("auth.secret (JWT_SECRET_KEY): is an example out of a manual; make one of your own")
    if len(set(key)) < _MIN_DISTINCT or _PERIODS.fullmatch(key):
        raise ConfigurationError("auth.secret (JWT_SECRET_KEY): repeats itself and can be guessed; make a random one")
    if secret.lstrip().startswith(("-----BEGIN", "ssh-", "ecdsa-")):
        # Everybody can have a public key, so it is no shared secret.
        raise ConfigurationError("auth.secret (JWT_SECRET_KEY): is a key file; name it as auth.public_key_file")
    return key


def public_key(pem: bytes, algorithm: str) -> TokenKey:
    """The public key in a PEM file."""
    try:
        found = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError("auth.public_key_file: holds no public key in PEM") from None
    return _fitting(found, algorithm, "auth.public_key_file")


def key_set(text: bytes, algorithm: str) -> dict[str, TokenKey]:
    """The keys of a JSON Web Key Set by their `kid`; those for other algorithms or for encryption are passed over."""
    found: dict[str, TokenKey] = {}
    for entry in _entries(text):
        kid = entry.get("kid")
        if not isinstance(kid, str) or not KID.fullmatch(kid) or kid in found:
            raise ConfigurationError("auth.jwks_file: every key needs a kid of its own: letters, digits, + / _ -")
        if _PRIVATE_PARTS & entry.keys():
            raise ConfigurationError(f"auth.jwks_file: {kid} is a private or shared key; only public ones belong here")
        if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
            continue
        try:
            key = jwt.PyJWK(entry, algorithm).key
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            raise ConfigurationError(f"auth.jwks_file: {kid} is not a key for {algorithm}") from None
        found[kid] = _fitting(key, algorithm, f"auth.jwks_file: {kid}")
    if not found:
        raise ConfigurationError(f"auth.jwks_file: holds no key for {algorithm}")
    return found


def _entries(text: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError("auth.jwks_file: is not a JSON Web Key Set") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigurationError("auth.jwks_file: is not a JSON Web Key Set")
    return entries


def _fitting(key: Any, algorithm: str, where: str) -> TokenKey:  # noqa: ANN401 - what a library made of a file
    wanted, fits = _KINDS[algorithm]
    if not fits(key):
        raise ConfigurationError(f"{where}: {algorithm} takes {wanted}")
    checked: TokenKey = key
    return checked


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "RS256": (
        f"an RSA public key of at least {_MIN_RSA_BITS} bits",
        lambda key: isinstance(key, rsa.RSAPublicKey) and key.key_size >= _MIN_RSA_BITS,
    ),
    "ES256": (
        "a public key on the curve P-256",
        lambda key: isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1",
    ),
    "EdDSA": ("an Ed25519 public key", lambda key: isinstance(key, ed25519.Ed25519PublicKey)),
}


class Guard:
    """Turns a token into a caller; every failure gets the same answer, except a signed token's too long life."""

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
        """The caller a valid token names; 401 otherwise, with the same body for everything but a too long life."""
        if not token or len(token) > _MAX_TOKEN_BYTES:
            raise Unauthorized("malformed" if token else "missing")
        try:
            return self._read(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unauthorized(_REASONS.get(type(error), "malformed")) from None

    def proof(self, token: bytes) -> Proof:
        """When a valid token expires, and its id; 401 if it is no longer valid."""
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
        """The key by `kid` alone; keys and key URLs inside a token are ignored."""
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
        service = claims["sub"] if role == "service" else None
        return Caller(claims["sub"], role, tenant, service=service)

    def _check_times(self, issued: float, expires: float, role: str) -> None:
        settings = self._settings
        longest = settings.max_lifetime_seconds
        if role == "admin" and settings.admin_max_lifetime_seconds is not None:
            longest = min(longest, settings.admin_max_lifetime_seconds)
        leeway = settings.leeway_seconds
        if issued > time.time() + leeway:
            raise Unauthorized("premature")
        if expires - issued > longest + leeway:
            # The signature holds, so the holder learns no more than what the token's own maker may know.
            raise Unauthorized("overlong", f"the token lives too long: exp may be at most {longest:g} s after iat")


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
