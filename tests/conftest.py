"""Says in the summary how many cases the exhaustive and the generated tests saw.

Generated cases are the same in every run, and slow machines may be slow.
"""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


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
