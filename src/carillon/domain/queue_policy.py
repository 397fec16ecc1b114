"""How stubbornly the messages of one queue are handled: document 003's policy, under its own names."""

import msgspec

from carillon.domain.backoff import Backoff
from carillon.domain.errors import ConfigurationError
from carillon.domain.policy import RetryPolicy

_FOR_EVER = 100 * 366 * 86_400.0
_SHORTEST = 0.001


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One queue's policy; what is not said is the document's default."""

    max_retries: int = 5
    """A handler runs at most once more than this."""
    base_delay_seconds: float = 60.0
    backoff_multiplier: float = 2.0
    max_delay_seconds: float = 3600.0
    jitter_seconds: float = 10.0
    lock_ttl_seconds: float = 120.0
    visibility_timeout_seconds: float = 300.0
    """A message longer in a worker's hands than this is reported."""
    timeout_seconds: float | None = None
    """A run that takes longer has failed; the visibility timeout where nothing is said."""
    first_exponent: int = 0
    """1 makes the first wait base times multiplier, as the document's origin has it."""
    concurrency: int | None = None
    """Runs of this queue at once in one process; 1 keeps strictly to the order of the queue."""

    def checked(self, queue: str) -> "Policy":
        """The policy itself, once it can work; ConfigurationError names what is wrong."""
        where = f'queue."{queue}"'
        waits = (self.base_delay_seconds, self.max_delay_seconds, self.jitter_seconds)
        if self.max_retries < 0 or (self.concurrency is not None and self.concurrency < 1):
            raise ConfigurationError(f"{where}: max_retries must be at least 0 and concurrency at least 1")
        if not (all(0 <= wait <= _FOR_EVER for wait in waits) and self.backoff_multiplier >= 1):  # NaN too
            raise ConfigurationError(f"{where}: waits must not be negative and backoff_multiplier at least 1")
        for name in ("lock_ttl_seconds", "visibility_timeout_seconds", "timeout_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not _SHORTEST <= seconds <= _FOR_EVER:
                raise ConfigurationError(f"{where}.{name}: {seconds:g} s is no time to work in")
        return self

    def scaled(self, scale: float) -> "Policy":
        """The same policy in a drill, where waits are shorter."""
        return msgspec.structs.replace(
            self,
            base_delay_seconds=self.base_delay_seconds * scale,
            max_delay_seconds=self.max_delay_seconds * scale,
            jitter_seconds=self.jitter_seconds * scale,
        )

    def deadline_seconds(self) -> float:
        """How long one run may take."""
        return self.visibility_timeout_seconds if self.timeout_seconds is None else self.timeout_seconds

    def retry(self) -> RetryPolicy:
        """The policy the engine decides by."""
        return RetryPolicy(
            backoff=Backoff(
                base=self.base_delay_seconds,
                factor=self.backoff_multiplier,
                cap=self.max_delay_seconds,
                jitter="additive",
                jitter_max=self.jitter_seconds,
                first_exponent=self.first_exponent,
            ),
            budget=self.max_retries,
            counts="retries",
            timeout_seconds=self.deadline_seconds(),
            failover_after_attempts=None,
            on_refused="bury",
            on_unknown="retry",
            give_up_after_seconds=_FOR_EVER,
        )

    def delay(self, failed_runs: int, dice: float) -> float:
        """Seconds until the next run."""
        return self.retry().backoff.delay(failed_runs, dice)


class Beat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often the upkeep of queues happens, and by which measures."""

    pump_seconds: float = 0.5
    sweep_seconds: float = 5.0
    grace_seconds: float = 5.0
    """Without a lock in two looks this far apart, a message in hand is an orphan."""
    cleanup_seconds: float = 60.0
    depth_seconds: float = 15.0
    failed_over: int = 1000
    """A failed list longer than this is cut to the newest `failed_keep`."""
    failed_keep: int = 100
    depth_limit: int = 1000
    """More than this waiting in one queue is worth a warning."""
    busy_pause_seconds: float = 1.0
    """How long a queue rests in which everything that waits is locked."""
    job_log_keeps: int = 10_000
    job_log_seconds: float = 30 * 86_400.0
    """Rows of job logs and finished effects older than this are deleted."""

    def checked(self) -> "Beat":
        """The beat itself, once it can work."""
        for name in ("pump", "sweep", "grace", "cleanup", "depth", "busy_pause", "job_log"):
            seconds = getattr(self, f"{name}_seconds")
            if not _SHORTEST <= seconds <= _FOR_EVER:
                raise ConfigurationError(f"beat.{name}_seconds: {seconds:g} s is no time to wait")
        if not 0 <= self.failed_keep <= self.failed_over or min(self.depth_limit, self.job_log_keeps) < 1:
            raise ConfigurationError("beat: failed_keep must not be above failed_over, limits must be at least 1")
        return self
