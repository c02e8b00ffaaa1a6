"""What all tests share: the Hypothesis profiles, and the backends."""

from __future__ import annotations

import os

import pytest
from backends import BACKENDS
from drawn_examples import BRIEF
from hypothesis import settings

# A deadline fails a test for what else the machine is doing.
settings.register_profile("dev", deadline=None)
# The same examples in every run, so that a failure is the change's own.
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
# A few examples, where another environment draws them all.
settings.register_profile("brief", settings.get_profile("ci"), max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked "once" where another environment runs it."""
    left_out = [item for item in items if BRIEF and item.get_closest_marker("once")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend in turn; one whose library is not there is skipped."""
    made = BACKENDS[request.param]()
    with made.context():
        yield made
