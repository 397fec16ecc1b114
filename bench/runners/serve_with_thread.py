"""`carillon` as it is where no process can be started: a thread renders what takes long."""

from collections.abc import Callable

from carillon.cli import app
from carillon.domain.notifications import Message
from carillon.intake import rendering
from carillon.intake.render_process import Job, RenderProcess


class NoProcess(RenderProcess):
    """Renders in this process."""

    def render(self, job: Job, beside: Callable[[], Message]) -> Message:
        del job
        return beside()


if __name__ == "__main__":
    setattr(rendering, "RenderProcess", NoProcess)  # noqa: B010 - a type checker refuses the plain form
    app()
