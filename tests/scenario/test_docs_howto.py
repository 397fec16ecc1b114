"""The guides that need a database, a mail server or a receiver, typed as printed; and their settings and programs."""

import asyncio
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from carillon.compose import from_settings
from carillon.config.reading import load
from carillon.providers import kinds
from carillon.system import SystemClock, system_dice
from tests.scenario.test_docs import PAGES
from tests.scenario.test_docs_channel import PAGE as CHANNEL
from tests.scenario.test_docs_tutorials import ALL as TUTORIALS
from tests.support import docs_pages
from tests.support.docs_shell import follow
from tests.support.ports import free_port
from tests.support.push_broker import Broker, reset
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.smtp import SmtpServer
from tests.support.sources import ROOT

HERE = (
    "docs/how-to/authenticate.md",
    "docs/how-to/run-listo.md",
    "docs/how-to/send-webhooks.md",
    "docs/how-to/hear-back-from-vendors.md",
    "docs/how-to/write-templates.md",
    "docs/how-to/retry-and-lanes.md",
    "docs/how-to/rehearse-failures.md",
    "docs/how-to/rehearse-an-outage.md",
    "docs/how-to/see-what-would-happen.md",
    "docs/how-to/expire-and-replace.md",
    "docs/how-to/gather-in-digests.md",
    "docs/how-to/choose-the-time.md",
    "docs/how-to/try-another-channel.md",
    "docs/how-to/cancel-and-change.md",
    "docs/how-to/let-people-choose.md",
    "docs/how-to/unsubscribe-with-one-click.md",
    "docs/how-to/answer-a-persons-requests.md",
    "docs/how-to/limit-rates.md",
    "docs/how-to/send-from-python.md",
    "docs/how-to/use-the-console.md",
    "docs/how-to/embed-carillon.md",
    "docs/how-to/test-with-pytest.md",
    "docs/how-to/tell-people-live.md",
    "docs/how-to/show-an-inbox.md",
    "docs/how-to/seal-addresses.md",
    "docs/how-to/use-the-terminal.md",
)
BLUEPRINTS = (
    "docs/blueprints/local.md",
    "docs/blueprints/listo.md",
    "docs/blueprints/sse.md",
)
SCENARIOS = "docs/blueprints/listo-scenarios.md"
BILLING_PAGE = "docs/blueprints/billing.md"
GALAXY_PAGE = "docs/blueprints/galaxy.md"
PUSH_PAGE = "docs/blueprints/push-worker.md"
POSTGRESQL = "docs/how-to/run-on-postgresql.md"
MOVE = "docs/how-to/move-to-postgresql.md"
SMTP = "docs/how-to/send-email-with-smtp.md"
BILLING = "docs/how-to/run-billing.md"
CELERY = "docs/how-to/come-from-celery.md"
QUEUES = "docs/how-to/your-own-queues.md"
GATEWAY = "docs/how-to/bring-your-own-gateway.md"
_MAIL_URL = "smtp://ringer:rope@mail.example.org:587?starttls=1"

BLOCKS = [
    pytest.param(block, id=f"{docs_pages.name(page)}:{block.line}")
    for page in docs_pages.pages()
    for block in docs_pages.blocks(page)
    if block.kind in {"toml", "python"} and (block.kind == "toml" or docs_pages.name(page) not in docs_pages.ELSEWHERE)
]


@pytest.mark.parametrize("page", [*HERE, *BLUEPRINTS])
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    follow(ROOT / page, tmp_path)


@pytest.mark.req("X2-10", "S2-133", "S2-134", "S2-135", "S2-136", "S2-137", "S2-138")
def test_the_scenarios_of_listo_answer_as_their_page_says(tmp_path: Path) -> None:
    follow(ROOT / SCENARIOS, tmp_path)


@pytest.mark.parametrize("name", [POSTGRESQL, MOVE])
def test_the_pages_with_postgresql_do_what_they_say(name: str, tmp_path: Path) -> None:
    page = ROOT / name
    with Postgres(durable=True) as server:
        administrate(page, server)
        follow(page, tmp_path, {"5432": str(server.port)})


def test_the_galaxy_page_does_what_it_says(tmp_path: Path) -> None:
    page = ROOT / GALAXY_PAGE
    with Postgres(durable=True) as server, Redis(password="change-me") as redis:
        administrate(page, server)
        ports = {"5432": str(server.port), "6379": str(redis.port), "8091": str(free_port())}
        follow(page, tmp_path, ports)


def test_the_push_worker_page_does_what_it_says(tmp_path: Path, rabbitmq: RabbitMQ, redis_server: Redis) -> None:
    page = ROOT / PUSH_PAGE
    redis_server.flush()
    with Postgres(durable=True) as server, Broker(rabbitmq.url) as broker:
        administrate(page, server)
        reset(broker)
        ports = {"5432": str(server.port), "6379": str(redis_server.port), "5672": str(rabbitmq.port)}
        follow(page, tmp_path, ports)
        reset(broker)


def administrate(page: Path, server: Postgres) -> None:
    for block in docs_pages.blocks(page):
        for statement in block.text.strip().split(";\n") if block.kind == "sql" else ():
            server.execute(statement)


def test_the_smtp_page_does_what_it_says(tmp_path: Path) -> None:
    with SmtpServer() as server:
        follow(ROOT / SMTP, tmp_path, {_MAIL_URL: server.url}, {"SSL_CERT_FILE": str(server.ca_file)})
        mail, with_file = server.wait_for(2)
    assert mail.parsed()["From"] == "Carillon <bells@example.org>"
    assert mail.parsed()["Subject"] == "Welcome, Ada!"
    (file,) = with_file.parsed().iter_attachments()
    assert (file.get_filename(), file.get_content_type()) == ("invoice.pdf", "application/pdf")


@pytest.mark.parametrize("page", [BILLING, BILLING_PAGE, CELERY, QUEUES])
def test_the_pages_with_redis_do_what_they_say(page: str, tmp_path: Path, redis_server: Redis) -> None:
    redis_server.flush()
    follow(ROOT / page, tmp_path, {"6379": str(redis_server.port)})


@pytest.mark.req("X3-3")
def test_the_page_about_gateways_does_what_it_says(tmp_path: Path, redis_server: Redis) -> None:
    redis_server.flush()
    (block,) = [each for each in docs_pages.blocks(ROOT / GATEWAY) if each.file == "pyproject.toml"]
    project = tomllib.loads(block.text)["project"]
    # As `pip install .` leaves it; the test installs nothing.
    told = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    names = "".join(f"{name} = {place}\n" for name, place in project["entry-points"]["carillon.gateways"].items())
    (told / "entry_points.txt").write_text(f"[carillon.gateways]\n{names}")
    follow(ROOT / GATEWAY, tmp_path, {"6379": str(redis_server.port)}, {"PYTHONPATH": str(tmp_path)})


def test_every_page_with_commands_is_followed() -> None:
    with_commands = {
        docs_pages.name(page)
        for page in docs_pages.pages()
        if any(block.kind == "console" for block in docs_pages.blocks(page))
    }
    alone = {
        POSTGRESQL,
        MOVE,
        SMTP,
        BILLING,
        BILLING_PAGE,
        GALAXY_PAGE,
        PUSH_PAGE,
        SCENARIOS,
        CELERY,
        QUEUES,
        GATEWAY,
        docs_pages.name(CHANNEL),
    }
    assert with_commands == {*PAGES, *HERE, *BLUEPRINTS, *TUTORIALS, *alone}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_right(block: docs_pages.Block, tmp_path: Path) -> None:
    if block.kind == "toml":
        asyncio.run(read_settings(block, tmp_path))
    elif block.file is None:
        subprocess.run([sys.executable, "-c", block.text], check=True, cwd=tmp_path, timeout=100)


async def read_settings(block: docs_pages.Block, folder: Path) -> None:
    """Load the file and build what it configures, as far as its providers exist."""
    config = folder / "carillon.toml"
    config.write_text(block.text)
    settings = load(config=config, environ={})
    from_settings.lanes(settings)
    from_settings.policies(settings)
    known = {name for name, options in settings.providers.items() if options["kind"] in kinds()}
    used = {name for chain in from_settings.chains(settings).values() for name in chain}
    tools = from_settings.tools(settings, SystemClock(), system_dice)
    for provider in from_settings.providers(settings, used & known, tools).values():
        await provider.aclose()
    await tools.http.aclose()
