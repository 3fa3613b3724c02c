"""What is loaded first: `harness.py`, which every test shares, in each process that runs tests."""

import importlib
import os

import pytest

# No progress bars, here and in what tests start; tqdm reads this when it is imported, which torch does.
os.environ["TQDM_DISABLE"] = "1"

# Their asserts say what they compared, as those of tests do.
pytest.register_assert_rewrite("harness", "chance", "shared")


def pytest_addoption(pluginmanager):
    """Load what tests share, before a folder's own conftest.py is; not where workers run them, who wait for this."""
    asked = pluginmanager.get_plugin("pytestconfig").known_args_namespace
    alone = asked.collectonly or (asked.dist == "no" and not asked.numprocesses)
    if alone or "PYTEST_XDIST_WORKER" in os.environ:
        pluginmanager.register(importlib.import_module("harness"), "harness")


def pytest_report_header():
    """Say under which seeds a failure is seen again."""
    fresh = os.environ.get("ICL_FRESH")
    return f"fresh seeds: ICL_FRESH={fresh}" if fresh else None
