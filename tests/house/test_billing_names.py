"""The page that says where the names of billing's specification are: none is missing, and none is invented."""

import re

import pytest

from carillon.compose.billing import BillingRole
from carillon.config.reading import load
from tests.support.process import run_carillon
from tests.support.sources import ROOT

PAGE = (ROOT / "docs" / "reference" / "billing-names.md").read_text()
SPECIFIED = re.findall(
    r"\S+",
    """
q:sub:payment_initiation q:sub:trial_payment q:sub:plan_change q:sub:usage_sync q:pay:subscription_update
q:pay:refund_initiation :processing :delayed :failed lock:<queue>:<id> q:log:jobs job_logs payment_webhook_requests
app/core/queue_policies.py max_retries base_delay_seconds backoff_multiplier max_delay_seconds jitter_seconds
lock_ttl_seconds visibility_timeout_seconds BRPOPLPUSH SETNX no_message success retry failed apply_async -E
process_webhook_processing process_refund_initiation pump_delayed_queues sweep_processing_queues
process_delayed_queues process_payment_initiation process_trial_payment process_plan_change process_usage_sync
PaymentService._queue_subscription_notification MockGatewayService.initiate_refund WebhookService
/v1/webhooks/payment PaymentWebhookRequest JobLog X-Webhook-Timestamp X-Webhook-Signature REDIS_URL
WEBHOOK_SIGNING_SECRET WEBHOOK_TOLERANCE_SECONDS SUBSCRIPTION_SERVICE_URL
""",
)
NEEDED = {"REDIS_URL": "redis://127.0.0.1:6379", "WEBHOOK_SIGNING_SECRET": "invented-for-the-test"}
_QUOTED = re.compile(r"`([^`]+)`")


def ours() -> list[str]:
    """The names of the right column."""
    rows = [line.split(" | ", 1)[1] for line in PAGE.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in _QUOTED.findall(row)]


@pytest.mark.req("P-832")
def test_every_name_of_the_specification_is_on_the_page() -> None:
    named = {part for name in _QUOTED.findall(PAGE) for part in (name, *name.split())}
    assert [name for name in SPECIFIED if name not in named] == []


def known(name: str, sources: str) -> bool:
    """Whether the program has it: a variable, a command, a path, a setting, or a word of its sources."""
    command, _, more = name.partition(" ")
    if name.startswith("CARILLON_"):
        policy = load("billing", environ={**NEEDED, name: "7"}).queue["q:pay:refund_initiation"]
        return policy.max_retries == 7
    if command == "carillon":
        words, _, option = more.partition(" --")
        shown = run_carillon([*words.split(), "--help"])
        return shown.returncode == 0 and option.split(" ")[0] in shown.stdout
    if command == "docker":
        return (ROOT / name.split()[3]).is_file()
    if command == "--roles":
        return more in set(BillingRole)
    if command in {"GET", "POST"}:
        # Another test holds that page and the program together.
        return f"| `{command}` | `{more}` |" in (ROOT / "docs" / "reference" / "http-api.md").read_text()
    return name.partition(" = ")[0] in sources


@pytest.mark.req("P-832")
def test_every_name_that_the_page_gives_is_one_of_the_program() -> None:
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".sql", ".toml"}]
    settings = load("billing", environ=NEEDED)
    dotted = [f"{top}.{name}" for top in ("beat",) for name in getattr(settings, top).__struct_fields__]
    sources = "\n".join([*(path.read_text() for path in files), *dotted])
    assert [name for name in ours() if not known(name, sources)] == []
    assert not known("beat.invented", sources), "and this tells the difference"
    assert not known("carillon queues list --invented", sources)
    assert not known("carillon invented", sources)
