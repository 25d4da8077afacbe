"""Says in the summary what was proved: theorems, regions by rule, witnesses of what is wrong."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests that passed have told."""
    for name in ("theorems", "regions", "witness"):
        lines = [
            f"{report.nodeid.split('::')[1]}: {value}"
            for report in terminalreporter.stats.get("passed", ())
            for told, value in report.user_properties
            if told == name
        ]
        if lines:
            terminalreporter.section(name)
            for line in lines:
                terminalreporter.line(line)
