"""Access to the HTTP API: authentication of callers, and their limits."""

from pathlib import Path

from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.keys import KeyFinder
from carillon.domain.ports import Observer
from carillon.version import __version__
from carillon.web import JwtSettings, WebSettings
from carillon.web.auth import Revoked, Tickets
from carillon.web.gate import is_loopback, token_guard
from carillon.web.peers import Proxies

_MOST = 1e9


def refuse_open_door(settings: Settings) -> None:
    """Refuse to serve the API without authentication, except on loopback; probes show nothing, so they need none."""
    http = settings.http
    # Built for its error: a network that is none stops the start before any part is opened.
    Proxies(http.trusted_proxies)
    if http.surface != "full":
        return
    if not settings.auth.asked() and not is_loopback(http.host):
        raise ConfigurationError(
            "auth.secret (JWT_SECRET_KEY): without it only loopback is served; "
            f"set it or listen on 127.0.0.1 instead of {http.host}"
        )
    _refuse_ranges(settings)
    jwt = token_settings(settings)
    if jwt is not None:
        # Build the guard before any part is opened, so that a wrong key stops the start at once.
        token_guard(jwt)


def _refuse_ranges(settings: Settings) -> None:
    http, auth = settings.http, settings.auth
    limits = {
        "http.requests_per_second": http.requests_per_second,
        "http.requests_burst": http.requests_burst,
        "http.key_requests_per_second": http.key_requests_per_second,
        "http.anonymous_requests_per_second": http.anonymous_requests_per_second,
        "http.auth_failures_per_minute": http.auth_failures_per_minute,
        "auth.max_lifetime_seconds": auth.max_lifetime_seconds,
        "auth.admin_max_lifetime_seconds": auth.admin_max_lifetime_seconds or 0.0,
    }
    for name, value in limits.items():
        if not 0 <= value <= _MOST:  # NaN too
            raise ConfigurationError(f"{name}: {value} is not between 0 and {_MOST:g}")


def console_served(settings: Settings) -> bool:
    """Whether the console is served; with `surface = "health"` it needs tokens or loopback."""
    http = settings.http
    if http.surface == "probes" or not http.console:
        return False
    return http.surface == "full" or settings.auth.asked() or is_loopback(http.host)


def is_open(settings: Settings) -> bool:
    """Whether every caller that can reach the listener may use the whole API."""
    return settings.http.surface == "full" and not settings.auth.asked()


def token_settings(settings: Settings) -> JwtSettings | None:
    """How tokens are checked; None if the settings name no key."""
    auth = settings.auth
    if not any((auth.secret, auth.public_key_file, auth.jwks_file)):
        return None
    return JwtSettings(
        secret=auth.secret or None,
        algorithm=auth.algorithm,
        public_key=_content("auth.public_key_file", auth.public_key_file),
        jwks=_content("auth.jwks_file", auth.jwks_file),
        issuer=auth.issuer,
        audience=auth.audience,
        typ=auth.typ,
        leeway_seconds=auth.leeway_seconds,
        max_lifetime_seconds=auth.max_lifetime_seconds,
        admin_max_lifetime_seconds=auth.admin_max_lifetime_seconds,
        revoked=None if auth.revoked_file is None else Revoked(Path(auth.revoked_file)),
    )


def _content(setting: str, file: str | None) -> bytes | None:
    if file is None:
        return None
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{setting}: {file}: {error.strerror}") from None


def web_settings(settings: Settings, keys: KeyFinder, tickets: Tickets | None, observe: Observer) -> WebSettings:
    """The limits of the HTTP surface and who may use it."""
    http = settings.http
    return WebSettings(
        body_limit=http.max_body_bytes,
        max_in_flight=http.max_requests_in_flight,
        slow_bodies_per_address=http.max_slow_bodies_per_address,
        trusted_proxies=tuple(http.trusted_proxies),
        requests_per_second=http.requests_per_second or None,
        requests_burst=http.requests_burst,
        key_requests_per_second=http.key_requests_per_second or None,
        anonymous_requests_per_second=http.anonymous_requests_per_second or None,
        auth_failures_per_minute=http.auth_failures_per_minute or None,
        jwt=token_settings(settings),
        keys=keys if settings.auth.asked() else None,
        tickets=tickets,
        people_reach_tenant=settings.auth.people_reach_tenant,
        observe=observe,
        allowed_hosts=tuple(http.allowed_hosts),
        docs=http.docs,
        version=__version__,
    )
