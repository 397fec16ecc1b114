"""How many examples a property test draws: all of them in a whole run, a fifth in a quick one."""

from hypothesis import HealthCheck, settings

WHOLE, QUICK = "house", "quick"
"""The profiles; `scripts/run_tests.py` names the second one."""
_PERCENT = {WHOLE: 100, QUICK: 20}
_FEWEST = 5


def register() -> None:
    """How long an example takes says how busy the machine is; and what is red once must be red again."""
    for name, percent in _PERCENT.items():
        settings.register_profile(
            name, deadline=None, derandomize=True, max_examples=percent, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile(WHOLE)


def examples(number: int, *allowed: HealthCheck) -> settings:
    """Draw `number` examples in a whole run; `allowed` are health checks that the test does without."""
    return settings(max_examples=cases(number), suppress_health_check=[HealthCheck.too_slow, *allowed])


def cases(number: int) -> int:
    """How many cases a test draws that draws them itself: `number` in a whole run."""
    return max(_FEWEST, number * settings().max_examples // 100)
