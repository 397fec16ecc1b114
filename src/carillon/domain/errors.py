"""Exceptions that callers handle differently; every other result is a value."""

from typing import NamedTuple


class CarillonError(Exception):
    """The root of Carillon's exceptions, so that a caller can catch them and nothing else."""


class ConfigurationError(CarillonError):
    """A setting is missing or wrong; the process must not start."""


class ServerUnavailable(CarillonError):
    """A server that this process needs does not answer; a starting process waits for it."""


class LedgerUnavailable(ServerUnavailable):
    """The ledger does not answer: reply 503, acknowledge nothing, try again later."""


class LedgerNewer(CarillonError):
    """A newer release has migrated the ledger: this release must not start on it; running processes may go on."""


class Overloaded(CarillonError):
    """A bounded queue is full: reply 503 with Retry-After instead of using more memory."""


class DirectoryUnavailable(CarillonError):
    """The directory of people does not answer; a door stops before this intent and tries again."""


class ArchiveUnavailable(CarillonError):
    """The history archive does not answer; only the copying of history waits for it."""


class Place(NamedTuple):
    """Where in a template something is wrong; line and column count from 1."""

    template: str
    """The key of the template, or of its layout or partial."""
    line: int
    column: int
    part: str = "text"
    """`subject`, `text`, `html` or `mjml`."""

    def __str__(self) -> str:
        return f"{self.template} {self.part}, line {self.line}, column {self.column}"


class BadIntent(CarillonError):
    """An input cannot become a notification; `code` names the error for programs, `field` the wrong field."""

    def __init__(self, code: str, message: str, *, field: str | None = None, place: Place | None = None) -> None:
        super().__init__(message if place is None else f"{message} ({place})")
        self.code = code
        self.field = field
        self.place = place


class BadTemplate(CarillonError):
    """A template cannot be used; `place` says where it is wrong, if its engine knows."""

    def __init__(self, message: str, *, place: Place | None = None) -> None:
        super().__init__(message if place is None else f"{message} ({place})")
        self.message = message
        self.place = place


class NoSuchFunction(BadTemplate):
    """A template calls what is not there; of a partial it may be a macro of the messages that include it."""


class Forged(CarillonError):
    """A callback whose signature is wrong; none of it may be used."""
