"""`carillon` as it is where no process can be started: a thread renders what takes long."""

from collections.abc import Callable

from carillon.cli import app
from carillon.domain.notifications import Message
from carillon.intake.render_process import Job, RenderProcess


def _beside(process: RenderProcess, job: Job, beside: Callable[[], Message]) -> Message:
    del process, job
    return beside()


if __name__ == "__main__":
    RenderProcess.render = _beside  # type: ignore[method-assign] - what is compared
    app()
