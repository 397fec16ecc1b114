"""A dead letter in a running process raises the numbers that its alarm looks at, under the names that it asks for."""

import re
from pathlib import Path
from typing import Any

from tests.deploy.prometheus import asked, exported
from tests.deploy.test_observe import RULES
from tests.support.client import Client
from tests.support.otlp import attributes, collecting
from tests.support.process import Program
from tests.support.waiting import wait_until


def test_a_dead_letter_would_ring(tmp_path: Path) -> None:
    with collecting() as collector:
        env = {
            "CARILLON_HTTP__PORT": "0",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collector.address}/v1/metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        with Program("serve", env=env, cwd=tmp_path) as program:
            client = Client.of(program)
            assert client.send(metadata={"sandbox": {"outcome": "refused", "times": 1}}).status == 202
            wait_until(lambda: bool(collector.points("carillon.dead_letters")), timeout=40, what="a dead letter told")
            wait_until(lambda: bool(collector.points("carillon.routes.open")), timeout=40, what="the ledger asked")
            program.terminate()
            assert program.wait() == 0
    known = exported()
    for origin, metric in collector.metrics:
        # Units make names, so what is exported must be what the names were made of.
        assert origin["service.instance.id"]
        assert {"s": "_seconds", "1": "_ratio", "ms": "_milliseconds"}.get(metric.unit, "") in min(known[metric.name])
        kind = {"sum": "_total", "histogram": "_bucket", "gauge": ""}[str(metric.WhichOneof("data"))]
        assert min(known[metric.name]).endswith(kind)
        points: Any = getattr(metric, str(metric.WhichOneof("data"))).data_points
        for point in points:
            assert any(set(attributes(point.attributes)) <= labels for labels in known[metric.name].values())
    (rule,) = (rule for rule in RULES if rule["alert"] == "CarillonDeadLetters")
    assert asked(rule["expr"]) == set(known["carillon.dead_letters"])
    ((labels, count),) = collector.points("carillon.dead_letters")
    assert count == 1
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= set(labels)
