"""Says in the summary how many cases the exhaustive and the generated tests saw.

Generated cases are the same in every run, and slow machines may be slow. A process that is lost
ends the run.
"""

import os

import pytest
from hypothesis import settings

# Workers share the cores: more threads in each would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem):
    """Go no further: the other workers may have tests for many minutes left."""
    pytest.exit(f"a worker died, or was ended for its time, in {crashitem}", returncode=1)


def pytest_terminal_summary(terminalreporter):
    counted = [
        f"{report.nodeid.split('::')[1]}: {value:,} {name}"
        for report in terminalreporter.stats.get("passed", ())
        for name, value in report.user_properties
        if name in ("cases", "drafts", "cells")
    ]
    if counted:
        terminalreporter.section("cases seen")
        for line in sorted(counted):
            terminalreporter.line(line)
