"""Long messages are rendered in a process of their own: the same answers, and nobody else pays for them."""

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.errors import BadIntent
from carillon.domain.notifications import Message, Template
from carillon.intake.jinja.formats import Person
from carillon.intake.render import render_message
from carillon.intake.render_process import Job, RenderProcess
from carillon.intake.rendering import AT_ONCE, rendered
from tests.support.waiting import wait_until
from tests.unit.test_jinja_engine import ADA, ready

TABLE = "{% for i in range(9000) %}<i>{{ i|money('EUR') }}</i>{% endfor %}"
TOO_MUCH = "{% for a in range(9999) %}{% for b in range(99) %}{{ b }}{% endfor %}{% endfor %}"


@pytest.fixture
def process() -> Any:
    found = RenderProcess()
    yield found
    found.close()


def job(template: Template, person: Person | None = ADA) -> Job:
    return (template, {"name": "Ada"}, "error", person)


def here(one: Job) -> Message:
    return render_message(*one)


def nobody() -> Message:
    raise AssertionError("it was rendered in this process")


@pytest.mark.req("P-651")
def test_the_answers_are_those_of_this_process(process: RenderProcess) -> None:
    template = ready(html=TABLE, subject="{{ t('greeting', name=name) }}", catalogues={"en-US": CATALOGUE})
    assert process.render(job(template), nobody) == render_message(*job(template))
    for wrong in ("\n {{ missing }}", TOO_MUCH, "{{ 'x'|money('EUR') }}"):
        refused = []
        for render in (partial(process.render, beside=nobody), here):
            with pytest.raises(BadIntent) as caught:
                render(job(ready(text=wrong)))
            refused.append((caught.value.code, str(caught.value), caught.value.field, caught.value.place))
        assert refused[0] == refused[1]


CATALOGUE = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"

msgid "greeting"
msgstr "Hello {name}"
"""


@pytest.mark.req("P-651")
def test_the_process_of_the_requests_spends_next_to_nothing_on_it(process: RenderProcess) -> None:
    template = ready(text=TOO_MUCH)
    with pytest.raises(BadIntent, match="steps"):
        process.render(job(template), nobody)
    spent = []
    for render in (partial(process.render, beside=nobody), here):
        began = time.process_time()
        with pytest.raises(BadIntent, match="steps"):
            render(job(template))
        spent.append(time.process_time() - began)
    assert spent[0] < spent[1] / 5, f"{spent[0]:.4f} s here for {spent[1]:.4f} s of work"


@pytest.mark.req("P-651")
def test_it_gives_way_and_knows_no_secrets(process: RenderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARILLON_LEDGER__SEAL_KEYS", "secret")
    process.render(job(ready(text="x")), nobody)
    assert process.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert b"secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()


@pytest.mark.req("P-651")
def test_a_process_that_was_ended_is_started_again(process: RenderProcess) -> None:
    for _ in range(2):
        assert process.render(job(ready(text="Hi {{ name }}")), nobody).text == "Hi Ada"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.req("P-651")
def test_what_ends_the_process_twice_is_refused(process: RenderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carillon.intake.render_process.LONGEST_SECONDS", 0.0)
    with pytest.raises(BadIntent, match="cannot take"):
        process.render(job(ready(text=TOO_MUCH)), nobody)


@pytest.mark.req("P-651")
def test_without_processes_it_is_rendered_here(process: RenderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    assert process.render(job(ready(text="x")), lambda: Message(text="here")).text == "here"


@pytest.mark.req("P-651")
def test_nothing_is_left_behind(process: RenderProcess) -> None:
    process.render(job(ready(text="x")), nobody)
    pid = process.pid
    process.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), timeout=10, what="the process gone")


@pytest.mark.req("P-651")
async def test_a_template_that_took_long_is_not_tried_beside_the_requests_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0

    def counting(*args: Any, **options: Any) -> Message:
        nonlocal tries
        tries += bool(options.get("quick"))
        return render_message(*args, **options)

    monkeypatch.setattr("carillon.intake.rendering.render_message", counting)
    template = ready(text="{% for i in range(3000) %}{{ i|money('USD') }}{% endfor %}")
    first = await rendered(template, {})
    assert tries == 1
    for _ in range(AT_ONCE):
        assert await rendered(template, {}) == first
    assert tries == 1
    await asyncio.gather(*(rendered(template, {}) for _ in range(2)))
    assert tries == 2
