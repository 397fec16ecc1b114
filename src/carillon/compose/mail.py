"""What completes emails before they are sent: files behind URLs, and suppressed copies."""

from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.ledger.opening import Ledger
from carillon.outbound.completing import MailCompleter
from carillon.providers import Tools
from carillon.providers.egress import EgressGuard, Rules, parse_networks, parse_own, parse_ports
from carillon.providers.files import FileFetcher


def mail_completer(settings: Settings, ledger: Ledger, tools: Tools) -> MailCompleter:
    """Completes emails with the process's HTTP client and ledger."""
    given = settings.mail
    fetcher = FileFetcher(tools.http, EgressGuard(_egress(settings, tools)), tuple(given.types), tools.clock)

    async def is_suppressed(address: str, tenant_id: str | None) -> bool:
        # A vendor's report about a copy may have changed the case of the address.
        for spelled in dict.fromkeys((address, address.lower())):
            if await ledger.suppression_in_force("email", spelled, tenant_id, None) is not None:
                return True
        return False

    return MailCompleter(
        fetcher.fetch,
        is_suppressed,
        ledger.keep_message,
        most_bytes=given.attachment_bytes,
        fetch_seconds=given.fetch_seconds,
    )


def _egress(settings: Settings, tools: Tools) -> Rules:
    given = settings.mail
    try:
        return Rules(
            allow_http=given.allow_http,
            allow_networks=parse_networks(given.allow_networks),
            allow_hosts=frozenset(host.lower() for host in given.allow_hosts),
            allow_ports=parse_ports(given.allow_ports),
            own=parse_own(tools.own_addresses),
        )
    except ValueError as error:
        raise ConfigurationError(f"mail: {error}") from None
