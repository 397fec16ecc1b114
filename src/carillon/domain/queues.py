"""List queues: their policies, the intervals and limits of their upkeep, and the values that operators see."""

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.domain.jobs import JobMessage
from carillon.domain.policy import LONGEST_SECONDS, Backoff, RetryPolicy


class Depth(msgspec.Struct, frozen=True):
    """The number of messages in each list of one queue."""

    main: int
    processing: int
    delayed: int
    failed: int
    oldest_seconds: float | None
    """The age of the next message in the main list, if the message has its creation time."""


class FailedMessage(msgspec.Struct, frozen=True):
    """One message of a failed list, as the worker last claimed it."""

    queue: str
    id: str
    message: JobMessage | None
    """None if the message is not a JSON object."""
    raw: bytes
    older: int = 0
    """How many failed before it: its place, which those that fail later do not change."""


_SHORTEST = 0.001
_WAITS = tuple(field.name for field in msgspec.structs.fields(Backoff))


class Policy(Backoff, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy of one queue; the defaults are those of the blueprint `billing`."""

    max_retries: int = 5
    """The number of runs after the first."""
    base_delay_seconds: float = 60.0
    max_delay_seconds: float = 3600.0
    jitter_seconds: float = 10.0
    lock_ttl_seconds: float = 120.0
    visibility_timeout_seconds: float = 300.0
    """The upkeep reports a message that a worker holds for longer than this."""
    timeout_seconds: float | None = None
    """A run that takes longer than this has failed; None means the visibility timeout."""
    concurrency: int | None = None
    """How many messages of this queue one process works on at once; 1 keeps the order of the queue."""

    def checked(self, queue: str) -> "Policy":
        """This policy if it is valid; raises ConfigurationError with the reason."""
        where = f'queue."{queue}"'
        if self.max_retries < 0 or (self.concurrency is not None and self.concurrency < 1):
            raise ConfigurationError(f"{where}: max_retries must be at least 0 and concurrency at least 1")
        # NaN fails every comparison below, and so is refused.
        if not (all(0 <= wait <= LONGEST_SECONDS for wait in self.waits()) and self.backoff_multiplier >= 1):
            raise ConfigurationError(f"{where}: waits must not be negative and backoff_multiplier at least 1")
        for name in ("lock_ttl_seconds", "visibility_timeout_seconds", "timeout_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not _SHORTEST <= seconds <= LONGEST_SECONDS:
                raise ConfigurationError(f"{where}.{name}: {seconds:g} s is not between 0.001 s and 100 years")
        return self

    def deadline_seconds(self) -> float:
        """How long one run may take."""
        return self.visibility_timeout_seconds if self.timeout_seconds is None else self.timeout_seconds

    def retry(self) -> RetryPolicy:
        """The same policy as the engine's RetryPolicy, with the same waits."""
        return RetryPolicy(
            **{name: getattr(self, name) for name in _WAITS},
            max_retries=self.max_retries,
            timeout_seconds=self.deadline_seconds(),
            failover_after_attempts="max",
            on_refused="bury",
            on_unknown="retry",
            give_up_after_seconds=LONGEST_SECONDS,
        )


class QueueUpkeep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The intervals and limits of the queues' upkeep; the table `beat` of the settings."""

    pump_seconds: float = 0.5
    sweep_seconds: float = 5.0
    grace_seconds: float = 5.0
    """The sweep takes a message from a worker's list if two looks this far apart find no lock for it."""
    cleanup_seconds: float = 60.0
    depth_seconds: float = 15.0
    failed_over: int = 1000
    """A failed list longer than this is cut to the newest `failed_keep`."""
    failed_keep: int = 100
    depth_limit: int = 1000
    """The upkeep warns when more messages than this wait in one queue."""
    busy_pause_seconds: float = 1.0
    """How long a worker pauses a queue whose waiting messages are all locked."""
    job_log_keeps: int = 10_000
    log_no_message: bool = False
    """True logs every tick that found no message, about one a second for each idle queue."""
    job_log_seconds: float = 30 * 86_400.0
    """Rows of job logs and finished effects older than this are deleted."""

    def checked(self) -> "QueueUpkeep":
        """These intervals and limits if they are valid; raises ConfigurationError with the reason."""
        for name in ("pump", "sweep", "grace", "cleanup", "depth", "busy_pause", "job_log"):
            seconds = getattr(self, f"{name}_seconds")
            if not _SHORTEST <= seconds <= LONGEST_SECONDS:
                raise ConfigurationError(f"beat.{name}_seconds: {seconds:g} s is not between 0.001 s and 100 years")
        if not 0 <= self.failed_keep <= self.failed_over or min(self.depth_limit, self.job_log_keeps) < 1:
            raise ConfigurationError("beat: failed_keep must not be above failed_over, limits must be at least 1")
        return self
