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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail what covers a cell of the table of what runs where, and is skipped though its library is there."""
    report = yield
    reason = str(call.excinfo.value) if call.excinfo else ""
    if report.skipped and "could not import" not in reason and _covers_a_cell(item):
        report.outcome, report.longrepr = (
            "failed",
            f"{item.nodeid} covers a cell of the table, and was skipped: {reason}",
        )
    return report


def _covers_a_cell(item):
    backend = BACKENDS.get(getattr(item, "callspec", None) and item.callspec.params.get("backend"))
    needs = [mark.kwargs.get("needs") for mark in item.iter_markers("covers")]
    return any(backend is None or need is None or getattr(backend, need) for need in needs)


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend in turn; one whose library is not there is skipped."""
    made = BACKENDS[request.param]()
    with made.context():
        yield made
