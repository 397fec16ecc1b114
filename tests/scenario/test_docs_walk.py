"""The way of one notification is what the page says: three programs run, and their traces are compared with it."""

from pathlib import Path

import pytest

from scripts.trace_walk import PAGE, WAYS, problems, way
from tests.support import walks
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.tracing import Passed

TIMES = 1
"""One walk, and more while none has the order of the page."""


def described(key: str, runs: list[Passed]) -> list[str]:
    return problems(PAGE.read_text(), WAYS[key][0], runs)


def agrees(key: str) -> walks.Agrees:
    return lambda runs: not described(key, runs)


def test_over_http(tmp_path: Path, postgres: Postgres) -> None:
    runs = walks.http(tmp_path, postgres.database(), TIMES, agrees=agrees("http"))
    assert {"web", "doors", "intake", "ledger", "outbound", "providers", "receipts"} <= {
        file.partition("/")[0] for file, _ in runs[0]
    }, "the way reaches the receipt"
    assert described("http", runs) == []


def test_from_rabbitmq_to_fcm(tmp_path: Path, postgres: Postgres, rabbitmq: RabbitMQ, redis_server: Redis) -> None:
    runs = walks.push_worker(
        tmp_path,
        postgres.database(),
        TIMES,
        rabbit=rabbitmq,
        redis_server=redis_server,
        agrees=agrees("push-worker"),
    )
    assert described("push-worker", runs) == []


def test_one_payment(tmp_path: Path, postgres: Postgres, redis_server: Redis) -> None:
    runs = walks.billing(tmp_path, postgres.database(), TIMES, redis_server=redis_server, agrees=agrees("billing"))
    assert described("billing", runs) == []


# Controls: a page that says something else is noticed.

A, B, C = ("web/server.py", "serve"), ("intake/plan.py", "plan"), ("ledger/rows.py", "storable")
TEXT = """## Way

1. [web/server.py](x): `serve`. It.
2. [intake/plan.py](x): `plan`. It.

Also passed, at varying places: `ledger`
"""


def test_control_a_page_that_is_true_passes() -> None:
    assert problems(TEXT, "Way", [[B, A, C], [A, C, B]]) == []


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ([B, A], "intake/plan.py: plan was passed before web/server.py: serve"),
        ([A], "intake/plan.py: plan was not passed"),
        ([A, B, ("receipts/telling.py", "tell")], "the page does not name the room receipts"),
    ],
)
def test_control_a_page_that_is_not_true_is_noticed(run: Passed, said: str) -> None:
    assert problems(TEXT, "Way", [run]) == [said]


def test_control_a_section_that_is_gone_is_noticed() -> None:
    assert problems(TEXT, "Another way", []) == ["no section 'Another way' with steps"]


def test_the_order_on_which_all_runs_agree() -> None:
    background = ("outbound/worker.py", "Worker.run")
    assert way([[background, A, B, C], [A, C, B, background]], [background]) in ([A, B], [A, C])
