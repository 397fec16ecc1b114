"""The settings of the HTTP listener: where it serves, how much at once, and whom."""

from typing import Literal

import msgspec


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where and how the HTTP listener serves."""

    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 256 * 1024
    max_requests_in_flight: int = 1024
    header_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 10.0
    idle_timeout_seconds: float = 60.0
    surface: Literal["full", "health", "probes"] = "full"
    """`probes` serves the two probes and nothing else, `health` the health checks beside them."""
    allowed_hosts: list[str] = []
    """Names served beside loopback; empty serves every name where everybody is asked who they are."""
    docs: bool = True
    console: bool = True
    requests_per_second: float = 0.0
    """Per token, or per address where nobody is asked; 0 is no limit, here and in the next four."""
    requests_burst: float = 200.0
    key_requests_per_second: float = 100.0
    anonymous_requests_per_second: float = 20.0
    """Per address, of those who show nothing although everybody is asked."""
    auth_failures_per_minute: float = 10.0


class Auth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bearer tokens and API keys; without any of them only loopback is served."""

    secret: str | None = None
    algorithm: Literal["HS256", "RS256", "ES256", "EdDSA"] = "HS256"
    public_key_file: str | None = None
    jwks_file: str | None = None
    issuer: str | None = None
    audience: str | None = None
    typ: str = "JWT"
    leeway_seconds: float = 30.0
    max_lifetime_seconds: float = 3600.0
    admin_max_lifetime_seconds: float | None = None
    revoked_file: str | None = None
    """One `jti` to a line; looked at again every few seconds."""
    required: bool = False
    """True asks everybody for an API key although no tokens are configured."""

    def asked(self) -> bool:
        """Whether callers are asked who they are."""
        return self.required or any((self.secret, self.public_key_file, self.jwks_file))
