"""The gate: prove or refute that a sampler keeps the target distribution.

from specref.gate import check, conformance

report = check("my_engine.adapter")          # report.verdict, report.findings, report.to_json()
test_sampler = conformance("my_engine.adapter")       # one pytest test per claim

Where what is, in the order in which a run comes by:

    errors, limit, seeds    refusals; time limits; seeds and global random states
    cases                   the drafts and laws that a subject is asked to verify
    subject, runner,        samplers found by name and spoken to with care; those in other
    process                 languages, as processes
    run, session            which checks, in which order; budgets
    variable, cell          draws, and boxes of them: what a measured law is made of
    tape, taint, scalar,    the law of a torch function, run on given draws
    uniform, race, measure
    audit, stream, taped    that law against real draws; draws that are used twice; all as one
                            instrument
    learn, inject, words,   the law of anything else that can be given its draws; all as one
    opaque, learned         instrument
    evidence, samples       what counts alone can say
    checks, exact, diagnose the claims; measured laws held to them; the name of the fault
    report, replays, view   findings as data, as files to repeat, as text
    certificate, map        the cells for others to check, and as a picture
    suite                   findings as pytest tests
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specref.gate.errors import UsageError
    from specref.gate.report import Finding, Report
    from specref.gate.run import check, replay
    from specref.gate.suite import conformance

_HOME = {
    "Finding": "report",
    "Report": "report",
    "UsageError": "errors",
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
