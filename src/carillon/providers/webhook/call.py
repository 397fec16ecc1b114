"""One webhook on its way, without a task of its own."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Throttled, Unknown
from carillon.providers.http import Call, NotSent, Reply, unanswered
from carillon.providers.webhook.slots import Waiting

if TYPE_CHECKING:
    from carillon.providers.webhook.send import Signer, Webhook


class Sending:
    """One call on its way: it waits for a slot of its endpoint, sets out, and tells its end once."""

    __slots__ = ("_began", "_dispatch", "_hook", "_signer", "_step", "_tell", "_url")

    def __init__(
        self,
        hook: "Webhook",
        dispatch: Dispatch,
        url: str,
        signer: "Signer",
        tell: Callable[[Outcome], None],
    ) -> None:
        self._hook = hook
        self._dispatch = dispatch
        self._url = url
        self._signer = signer
        self._tell = tell
        self._began = hook.clock.monotonic()
        self._step: Waiting | Call | asyncio.Task[Reply] | asyncio.Handle | None = None
        """What it waits for; None before and after."""

    def begin(self) -> None:
        hook = self._hook
        if hook.slots.take(self._url):
            self._set_out()
        else:
            seconds = min(hook.wait_seconds, self._dispatch.timeout_seconds)
            self._step = hook.slots.wait(self._url, seconds, self._set_out, self._late)

    def give_up(self) -> None:
        """Nobody waits for it any more; its slot is the next one's."""
        step, self._step = self._step, None
        if isinstance(step, Waiting):
            step.leave()
        elif step is not None:
            if isinstance(step, Call):
                step.give_up()
            else:
                step.cancel()
            self._hook.slots.give_back(self._url)

    def _late(self) -> None:
        self._step = None
        wait = self._hook.wait_seconds
        self._tell(Throttled("the endpoint is busy with other calls", retry_after=wait))

    def _set_out(self) -> None:
        hook = self._hook
        left = max(0.0, self._dispatch.timeout_seconds - (hook.clock.monotonic() - self._began))
        try:
            request = hook.request(self._dispatch, self._url, self._signer, left)
            step = hook.http.start(request, self._ended)
        except Exception as error:  # noqa: BLE001 - the slot must come back whatever a message does to the code
            self._soon(_bug(error))
            return
        if isinstance(step, NotSent):
            self._soon(unanswered(step))
        elif step is not None:
            self._step = step
        else:
            # A name has to be looked up, and that waits.
            self._step = asyncio.create_task(hook.http.post(request))
            self._step.add_done_callback(self._posted)

    def _soon(self, outcome: Outcome) -> None:
        # Not at once: its slot's next owner may end as quickly, and so on, each inside of the one before.
        self._step = asyncio.get_running_loop().call_soon(self._conclude, outcome)

    def _posted(self, post: asyncio.Task[Reply]) -> None:
        if self._step is not post:
            return
        error = asyncio.CancelledError() if post.cancelled() else post.exception()
        if error is None:
            self._ended(post.result())
        else:
            self._conclude(_bug(error))

    def _ended(self, reply: Reply) -> None:
        try:
            outcome = self._hook.judge(reply)
        except Exception as error:  # noqa: BLE001 - whoever tells us of the end has others to tell
            outcome = _bug(error)
        self._conclude(outcome)

    def _conclude(self, outcome: Outcome) -> None:
        self._step = None
        self._hook.slots.give_back(self._url)
        self._tell(outcome)


def _bug(error: BaseException) -> Unknown:
    return Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
