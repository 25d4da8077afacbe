"""The gate: prove or refute that a sampler keeps the target distribution.

from specref.gate import check, conformance

report = check("my_engine.adapter")          # report.verdict, report.findings, report.to_json()
test_sampler = conformance("my_engine.adapter")       # one pytest test per claim
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specref.gate.report import Finding, Report
    from specref.gate.run import check, replay
    from specref.gate.subject import UsageError
    from specref.gate.suite import conformance

_HOME = {
    "Finding": "report",
    "Report": "report",
    "UsageError": "subject",
    "check": "run",
    "conformance": "suite",
    "replay": "run",
}

__all__ = ["Finding", "Report", "UsageError", "check", "conformance", "replay"]


def __getattr__(name: str) -> Any:
    """Import public names on first use: the gate needs NumPy, and torch for the tape."""
    if name not in _HOME:
        raise AttributeError(f"module 'specref.gate' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"specref.gate.{_HOME[name]}"), name)
    globals()[name] = value
    return value
