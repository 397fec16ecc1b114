"""The section of a push worker on a RabbitMQ queue."""

from typing import ClassVar, Literal

from carillon.config.section import Bounds, Section


class Push(Section, frozen=True):
    """The queue, the marks, and the service that templates are fetched from."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "mark_seconds": (1, 365 * 86_400),
        "requeue_pause_seconds": (0.001, 3600),
        "half_open_wait_seconds": (0, 3600),
        "template_timeout_seconds": (0.001, 3600),
        "template_cache_seconds": (0, 86_400),
    }

    rabbitmq_url: str = ""
    queue: str = "push.queue"
    failed_queue: str = "failed.queue"
    exchange: str | None = None
    """A direct exchange both queues are bound to, by the keys `push` and `failed`; made when it is not there."""
    takeover_after: float = 300.0
    """A `processing` mark this old belonged to a worker that died."""
    mark_seconds: int = 86_400
    requeue_pause_seconds: float = 1.0
    """Before a message is given back to the queue."""
    half_open_overflow: Literal["wait", "dlq"] = "wait"
    """What happens to messages while another's probe is under way."""
    half_open_wait_seconds: float = 15.0
    retry_429: bool = True
    """False takes 429 and 408 as every other 4xx: never retried."""
    missing_variable: Literal["error", "empty", "keep"] = "error"
    template_service_url: str = ""
    template_timeout_seconds: float = 10.0
    template_cache_seconds: float = 0.0
    """0 fetches the template of every message."""

    @property
    def half_open_seconds(self) -> float:
        """How long a message waits for another's probe."""
        return self.half_open_wait_seconds if self.half_open_overflow == "wait" else 0.0
