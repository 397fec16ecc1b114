"""The order mail beside Jinja2 and Django templates, what it costs to accept one, and what a bomb costs the others.

Every mail has an order of its own, so that no side finds an amount that it has written before. Each side compiles once,
knows its locale and does nothing that its documentation lets it leave out.
"""

import datetime as dt
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import django
import jinja2
from babel import Locale
from babel.dates import format_date
from babel.numbers import format_currency
from django.conf import settings
from django.template import Context as DjangoContext
from django.template import Engine, Library

from bench import bombs
from bench.bombs import ALONE, BESIDE
from bench.measure import Outcome, Ratio, interleaved
from bench.stage import WELCOME, carillon, wrk
from carillon.domain.notifications import Template
from carillon.intake.jinja.formats import Person
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message
from tests.support.servers import Postgres

PART = "render"
ROUNDS, MAILS = 5, 300
SENT = 50
"""Different bodies of one load: an environment variable holds no more."""
OURS, JINJA, DJANGO = "Carillon", "Jinja2 with Babel", "Django templates with Babel"
ACCEPT_WELCOME, ACCEPT_ORDER = "accepted: welcome", "accepted: the order mail"
ACCEPT_PLAIN = "accepted: the same data and as long a mail, without logic"
PERSON = Person("de-DE", "Europe/Berlin", 1.8e9)
LOCALE = Locale("de", "DE")
LINES = 20
LAYOUT = (
    "<!DOCTYPE html><html><head><title>{% block title %}{% endblock %}</title></head><body>"
    "<table>{% block content %}{% endblock %}</table><p>{{ shop }}</p></body></html>"
)
ROWS = (
    "{% for item in order.lines %}<tr><td>{{ item.name }}</td><td>{{ item.quantity }}</td>"
    "<td>{{ item.price|MONEY }}</td><td>{{ item.total|MONEY }}</td></tr>{% endfor %}"
    "<tr><td>{{ order.total|MONEY }}</td><td>{{ order.day|DAY }}</td></tr>"
)
BODY = "{% block title %}{{ order.number }}{% endblock %}{% block content %}" + ROWS + "{% endblock %}"


def order(dice: random.Random) -> dict[str, Any]:
    """An order of its own: nothing in it was written before."""
    lines = [
        {
            "name": f"Item <{dice.randrange(10_000)}>",
            "quantity": dice.randrange(1, 10),
            "price": dice.randrange(100, 100_000) / 100,
            "total": dice.randrange(100, 1_000_000) / 100,
        }
        for _ in range(LINES)
    ]
    day = dt.date(2026, 1, 1) + dt.timedelta(dice.randrange(3000))
    said = {"number": f"A-{dice.randrange(10**6)}", "total": dice.randrange(10**7) / 100, "day": day.isoformat()}
    return {"shop": "Shop & Co", "order": {**said, "lines": lines}}


ORDERS = [order(random.Random(number)) for number in range(MAILS)]


def source(money: str, day: str, extends: str) -> str:
    return '{% extends "' + extends + '" %}' + BODY.replace("MONEY", money).replace("DAY", day)


def measure(postgres: Postgres, progress: Callable[[str], None], seconds: float = 4.0) -> Outcome:
    subjects = {OURS: _ours(), JINJA: _jinja2(), DJANGO: _django()}
    pages = {name: render(ORDERS[0]) for name, render in subjects.items()}
    if len({page.replace("&#39;", "&#x27;").replace("&#34;", "&quot;") for page in pages.values()}) != 1:
        raise RuntimeError("the three do not write the same mail")
    timed: dict[str, Callable[[], float]] = {name: partial(_rate, render) for name, render in subjects.items()}
    outcome = Outcome(interleaved(PART, "mails/s", timed, ROUNDS, progress))
    with tempfile.TemporaryDirectory() as folder:
        loads = _loads(postgres, Path(folder), seconds)
        outcome.add(Outcome(interleaved(PART, "requests/s", loads, 3, progress)))
        waits = bombs.waits(postgres, Path(folder) / "bombs", seconds)
        outcome.add(Outcome(interleaved(PART, "ms", {name: waits[name] for name in (ALONE, BESIDE)}, 3, progress)))
    outcome.ratios = [
        Ratio("render/Jinja2", outcome.median(OURS) / outcome.median(JINJA), 2.0),
        Ratio("render/Django", outcome.median(OURS) / outcome.median(DJANGO), 5.0),
        Ratio("render/accept-order-beside-welcome", outcome.median(ACCEPT_ORDER) / outcome.median(ACCEPT_WELCOME), 0.8),
        Ratio("render/accept-order-beside-no-logic", outcome.median(ACCEPT_ORDER) / outcome.median(ACCEPT_PLAIN), 0.8),
        Ratio("render/p99-alone-to-beside-bombs", outcome.median(ALONE) / outcome.median(BESIDE), 0.5),
    ]
    return outcome


def _rate(render: Callable[[dict[str, Any]], str]) -> float:
    # Processor time: what others do on the machine meanwhile is not the engines' doing.
    began = time.thread_time()
    for one in ORDERS:
        render(one)
    return MAILS / (time.thread_time() - began)


def _ours() -> Callable[[dict[str, Any]], str]:
    layout = Template(code="base", channel="email", locale="de", engine="jinja", kind="layout", text="", html=LAYOUT)
    written = Template(
        code="order",
        channel="email",
        locale="de",
        engine="jinja",
        text="x",
        html=source('money("EUR")', 'date("full")', "base"),
    )
    ready = Composer().ready(written, lambda key: {("email", "de"): layout} if key == "base" else {})
    return lambda data: render_message(ready, data, person=PERSON).html or ""


def _jinja2() -> Callable[[dict[str, Any]], str]:
    sources = {"base": LAYOUT, "order": source("money", "day", "base")}
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.DictLoader(sources), auto_reload=False
    )
    environment.filters |= {"money": _money, "day": _day}
    template = environment.get_template("order")
    return template.render


def _django() -> Callable[[dict[str, Any]], str]:
    if not settings.configured:
        settings.configure(USE_I18N=False)
        django.setup()
    library = Library()
    library.filter("money", _money)
    library.filter("day", _day)
    engine = Engine(
        loaders=[("django.template.loaders.locmem.Loader", {"base": LAYOUT, "order": source("money", "day", "base")})]
    )
    engine.template_builtins.append(library)
    template = engine.get_template("order")
    return lambda data: template.render(DjangoContext(data, use_l10n=False, use_tz=False))


def _money(value: float) -> str:
    return format_currency(value, "EUR", locale=LOCALE)


def _day(value: str) -> str:
    return format_date(dt.date.fromisoformat(value), "full", locale=LOCALE)


def _loads(postgres: Postgres, folder: Path, seconds: float) -> dict[str, Callable[[], float]]:
    place = folder / "order_mail" / "en-US" / "email"
    place.mkdir(parents=True)
    (folder / "_layouts" / "base").mkdir(parents=True)
    (folder / "_layouts" / "base" / "html.jinja").write_text(LAYOUT)
    (place / "html.jinja").write_text(source('money("EUR")', 'date("full")', "base"))
    (place / "text.jinja").write_text("Order {{ order.number }}")
    (place / "subject.jinja").write_text("Order {{ order.number }}")
    (folder / "order_plain" / "en-US" / "email").mkdir(parents=True)
    for part, written in {"html": _ours()(ORDERS[0]), "text": "Order {{order.number}}", "subject": "Order"}.items():
        (folder / "order_plain" / "en-US" / "email" / f"{part}.tmpl").write_text(written)
    about = {"channel": "email", "recipient": "ada@example.org"}

    def orders(key: str) -> list[dict[str, Any]]:
        return [{"templateKey": key, **about, "data": one} for one in ORDERS[:SENT]]

    def load(body: list[dict[str, Any]]) -> float:
        env = {
            "DATABASE_URL": postgres.database(),
            "CARILLON_TEMPLATES__FOLDERS": f"blueprint:templates,{folder}",
        }
        with carillon(env, "--roles", "doors") as (_, address):
            wrk(address, 1.0, bodies=body)
            found = wrk(address, seconds, bodies=body)
        if found["bad"]:
            raise RuntimeError(f"{found['bad']:.0f} requests were not accepted")
        return found["rate"]

    return {
        ACCEPT_WELCOME: lambda: load([WELCOME]),
        ACCEPT_ORDER: lambda: load(orders("order_mail")),
        ACCEPT_PLAIN: lambda: load(orders("order_plain")),
    }
