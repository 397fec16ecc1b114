"""Exported metrics as Prometheus keeps them over a time, and what promtool makes of the alarms over them."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.deploy.prometheus import Series, exported
from tests.support.otlp import attributes
from tests.support.sources import ROOT

RULES = ROOT / "deploy" / "observe" / "alerts.yaml"
STEP = 15
"""Seconds between two exports and two evaluations, as docs/how-to/use-alarms.md says."""
FIRED = 'max by (alertname) (ALERTS{{alertname="{name}", alertstate="firing"}})'
ANY = 'count by (alertname) (max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s]))'
_TIMES = {"s", "ms"}


class Timeline:
    """Every series with its value at each export."""

    def __init__(self, scale: float = 1.0) -> None:
        """One second of what is exported stands for `scale` seconds."""
        self._scale = scale
        self._known = _known()
        self._values: dict[str, dict[int, float]] = {}
        self.steps = 0

    def add(self, step: int, body: ExportMetricsServiceRequest) -> None:
        """One export of one process."""
        self.steps = max(self.steps, step + 1)
        for numbers in body.resource_metrics:
            instance = {"instance": str(attributes(numbers.resource.attributes).get("service.instance.id", "one"))}
            for scope in numbers.scope_metrics:
                for metric in scope.metrics:
                    self._add(step, metric, instance)

    def _add(self, step: int, metric: Any, instance: Mapping[str, str]) -> None:
        kind = str(metric.WhichOneof("data"))
        times = self._scale if metric.unit in _TIMES else 1.0
        names = sorted(self._known[metric.name])
        for point in getattr(metric, kind).data_points:
            labels = {**instance, **attributes(point.attributes)}
            if kind == "histogram":
                self._histogram(step, names[0].removesuffix("_bucket"), labels, point)
                continue
            value = point.as_int if point.HasField("as_int") else point.as_double
            self._put(step, names[0], labels, value * times)

    def _histogram(self, step: int, name: str, labels: Mapping[str, str], point: Any) -> None:
        total = 0
        bounds = [f"{bound * self._scale:g}" for bound in point.explicit_bounds] + ["+Inf"]
        for bound, count in zip(bounds, point.bucket_counts, strict=True):
            total += count
            self._put(step, f"{name}_bucket", {**labels, "le": bound}, total)
        self._put(step, f"{name}_count", labels, point.count)
        self._put(step, f"{name}_sum", labels, point.sum * self._scale)

    def _put(self, step: int, name: str, labels: Mapping[str, str], value: float) -> None:
        inside = ",".join(f'{label}="{said}"' for label, said in sorted(labels.items()))
        self._values.setdefault(f"{name}{{{inside}}}", {})[step] = value

    def series(self) -> list[dict[str, str]]:
        """As promtool wants them; a step without an export has no sample."""
        return [
            {"series": name, "values": " ".join(f"{values[at]:g}" if at in values else "_" for at in range(self.steps))}
            for name, values in self._values.items()
        ]


@cache
def _known() -> Mapping[str, Series]:
    return exported()


def complaints(
    folder: Path, timeline: Timeline, *, calm_until: int, fired: Iterable[tuple[str, int]] = (), only: str | None = None
) -> str:
    """What promtool objects to: an alarm in the calm, or one that does not fire by its second; empty if nothing.

    With `only`, promtool evaluates this alarm and no other one, which takes a fraction of the time.
    """
    calm = [{"expr": ANY.format(seconds=calm_until), "eval_time": f"{calm_until}s", "exp_samples": []}]
    expected = [
        {
            "expr": FIRED.format(name=name),
            "eval_time": f"{second}s",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
        }
        for name, second in fired
    ]
    asked = {
        "rule_files": [str(RULES if only is None else _alone(folder, only))],
        "evaluation_interval": f"{STEP}s",
        "tests": [
            {"interval": f"{STEP}s", "input_series": timeline.series(), "promql_expr_test": [*calm, *expected]},
        ],
    }
    path = folder / "alarms.yaml"
    # JSON is YAML, and written much faster.
    path.write_text(json.dumps(asked), encoding="utf-8")
    # A second of work needs no garbage collection.
    environment = {**os.environ, "GOGC": "off", "GOMEMLIMIT": "512MiB"}
    command = ["promtool", "test", "rules", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return "" if run.returncode == 0 else run.stdout + run.stderr


def _alone(folder: Path, name: str) -> Path:
    """A file with this alarm, in its group and as we ship it."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    kept = [{**group, "rules": [rule for rule in group["rules"] if rule["alert"] == name]} for group in groups]
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"groups": [group for group in kept if group["rules"]]}), encoding="utf-8")
    return path
