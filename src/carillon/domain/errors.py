"""Errors that callers handle differently; everything else is a value."""


class CarillonError(Exception):
    """Root of every error of ours, so that a caller can catch Carillon and nothing else."""


class ConfigurationError(CarillonError):
    """A setting is missing or wrong; the process must not start."""


class ServerUnavailable(CarillonError):
    """A server that this process needs cannot be reached now: a start waits for it."""


class LedgerUnavailable(ServerUnavailable):
    """The ledger cannot be reached now: answer 503, acknowledge nothing, try again later."""


class LedgerNewer(CarillonError):
    """A newer release has migrated the ledger: this one must not start on it; what runs already may go on."""


class Overloaded(CarillonError):
    """A bounded queue is full: answer 503 with Retry-After before memory grows."""


class DirectoryUnavailable(CarillonError):
    """The directory of people cannot be reached now; a door stops before this intent."""


class ArchiveUnavailable(CarillonError):
    """Where history is kept cannot be reached now; nothing waits for it but history."""


class BadIntent(CarillonError):
    """What arrived cannot become a notification; `code` is the machine's word, `field` the culprit."""

    def __init__(self, code: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class BadTemplate(CarillonError):
    """A template is not logic-free text with `{{name}}` placeholders."""


class Forged(CarillonError):
    """A callback whose signature is wrong; none of it may be used."""
