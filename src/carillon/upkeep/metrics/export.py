"""Where numbers leave: stdout as log lines, and a collector over OTLP."""

from typing import TYPE_CHECKING

import msgspec
from opentelemetry import metrics as otel

from carillon.domain.errors import ConfigurationError
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.logs.redaction import encode
from carillon.upkeep.metrics import otlp as exporting

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData


def configure_metrics(*, stdout: bool, otlp: bool = True, service: str = "carillon") -> "MeterProvider | None":
    """Export to stdout and over OTLP as asked; None, and no SDK at work, when nothing is to be exported."""
    if exporting.is_disabled():
        return None
    stdout = stdout or exporting.wants_console("metrics")
    collector = exporting.otlp_exporter("metrics") if otlp else None
    if not stdout and collector is None:
        return None
    # The SDK costs time and memory at import, which only those who export should pay.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader  # noqa: PLC0415

    exporters: list[MetricExporter] = [ConsoleMetricExporter(exporting.Lines(), _line)] if stdout else []  # type: ignore[arg-type]
    if collector is not None:
        exporters.append(collector)
    try:
        readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    except ValueError:
        raise ConfigurationError("OTEL_METRIC_EXPORT_INTERVAL must be a positive number of milliseconds") from None
    provider = MeterProvider(readers, exporting.resource(service))
    otel.set_meter_provider(provider)
    return provider


def _line(data: "MetricsData") -> str:
    begin = logs.active().header(logs.LEVELS["info"], "metrics", "Numbers since the start")
    return encode(begin | msgspec.json.decode(data.to_json(indent=None)))
