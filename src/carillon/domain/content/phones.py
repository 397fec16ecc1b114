"""Phone numbers: whether one can exist, how people write it, and to which countries text messages may go."""

from functools import lru_cache
from typing import Literal

import msgspec

COUNTRY = "country_not_allowed"
"""The classification of a route whose country is not allowed any more."""


class Phone(msgspec.Struct, frozen=True):
    """What a number says about itself."""

    country: str | None
    """Two letters of ISO 3166; None of a number that belongs to no country."""
    written: str
    """As people write it abroad: `+49 1511 2345678`."""
    possible: bool
    """It has a length that its country uses."""
    valid: bool
    """It also begins as numbers of its country do."""


class PhoneRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which numbers get text messages: each to a foreign country costs more, and some countries pay their callers."""

    check: Literal["format", "possible", "valid"] = "format"
    countries: frozenset[str] = frozenset()
    """Empty is every country."""
    tenants: dict[str, frozenset[str]] = {}
    """The countries of tenants with their own."""

    def allowed(self, tenant_id: str | None) -> frozenset[str]:
        """The countries of a tenant; empty is every country."""
        return self.tenants.get(tenant_id or "", self.countries)

    def refusal(self, address: str, tenant_id: str | None) -> str | None:
        """Why a number gets no text message of a tenant; None if it may get one."""
        countries = self.allowed(tenant_id)
        if not countries:
            return None
        phone = read_phone(address)
        if phone is not None and phone.country in countries:
            return None
        where = "a number of no known country" if phone is None or phone.country is None else phone.country
        return f"{where} is not among the countries that text messages may go to: {', '.join(sorted(countries))}"

    def wrong(self, address: str) -> str | None:
        """Why a number cannot exist, by the check that the operator chose; None if it may exist."""
        if self.check == "format":
            return None
        phone = read_phone(address)
        if phone is None or not phone.possible:
            return "no country has numbers of this length"
        return None if self.check == "possible" or phone.valid else "no country has such a number"


@lru_cache(maxsize=4096)
def read_phone(address: str) -> Phone | None:
    """What a number in the form of E.164 says; None if it is none. A vendor's `whatsapp:` before it is left out."""
    # The tables of all countries take a while to load: only a process that looks at a number loads them.
    import phonenumbers  # noqa: PLC0415 - see above

    try:
        number = phonenumbers.parse(address.rpartition(":")[2], None)
    except phonenumbers.NumberParseException:
        return None
    return Phone(
        country=phonenumbers.region_code_for_number(number),
        written=phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL),
        possible=phonenumbers.is_possible_number(number),
        valid=phonenumbers.is_valid_number(number),
    )
