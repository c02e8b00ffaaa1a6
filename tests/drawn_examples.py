"""How many examples a test draws: `examples(number)`, fewer under the profile "brief"."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

__all__ = ["BRIEF", "examples"]

BRIEF: Final = os.environ.get("HYPOTHESIS_PROFILE") == "brief"
"""Whether another environment draws the whole numbers, so that a few examples do here."""


def examples(number: int) -> settings:
    """Return settings for so many examples; how long a draw takes, and fixtures that are shared, fail no test."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=max(number // 8, 5) if BRIEF else max(number, 1), suppress_health_check=checks)
