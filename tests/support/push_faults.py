"""What fault tests of the push worker share: where every message ended, and what the workers said."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support.push_stand import Push


class Whereabouts(NamedTuple):
    """How often each message, by its trace, is at each place."""

    pushed: Counter[str]
    failed: Counter[str]
    waiting: Counter[str]

    def lost(self, sent: Sequence[dict[str, Any]]) -> list[str]:
        everywhere = self.pushed | self.failed | self.waiting
        return [each["trace_id"] for each in sent if not everywhere[each["trace_id"]]]

    def twice(self) -> list[str]:
        return [trace for trace, times in self.pushed.items() if times > 1]


def whereabouts(push: Push, sent: Sequence[dict[str, Any]]) -> Whereabouts:
    """Stop every worker in order, and look everywhere; what is found in the queues is taken out."""
    for program in push.programs:
        if program.returncode is None:
            program.terminate()
    for program in push.programs:
        program.wait()
    push.until(lambda: push.broker.consumers() == 0, what="no consumer")
    posts = [entry["body"] for entry in push.posts()]
    pushed = Counter({each["trace_id"]: sum(each["trace_id"] in body for body in posts) for each in sent})
    failed = Counter(body["original_message"]["trace_id"] for body in push.broker.bodies("failed.queue"))
    waiting = Counter(body["trace_id"] for body in push.broker.bodies("push.queue"))
    return Whereabouts(+pushed, failed, waiting)


def events(push: Push, event: str) -> int:
    """How often the workers said so."""
    return sum(len(program.events(event)) for program in push.programs)
