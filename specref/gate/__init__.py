"""The gate: prove or refute that a sampler keeps the target distribution.

from specref.gate import check, conformance

report = check("my_engine.adapter")          # report.verdict, report.findings, report.to_json()
test_sampler = conformance("my_engine.adapter")       # one pytest test per claim

Where what is, in the order in which a run comes by:

    errors, limit, seeds    refusals; time limits; seeds and global random states
    cases, grid             the drafts and laws that a subject is asked to verify, also those that
                            sampling parameters make
    loading, subject,       samplers found by name, and spoken to with care; those in other
    runner, process         languages, as processes
    run, session            which checks, in which order; budgets
    variable, cell          draws, and boxes of them: what a measured law is made of
    tape, taint, scalar,    the law of a torch function, run on given draws
    uniform, race, measure
    audit, stream, taped    that law against real draws; draws that are used twice; all as one
                            instrument
    learn, inject, words,   the law of anything else that can be given its draws; all as one
    opaque, learned         instrument
    evidence, samples,      what counts alone can say, and the field's habit beside it
    chi_square
    checks, exact, diagnose claims about rounds; measured laws held to them; names of faults
    comparison, relations,  rounds on chosen cases held to known laws: what must not change the law,
    batches, seeding        requests beside each other, what the seed decides
    asks, answers,          the law that sampling parameters ask for: requests, what came of them,
    requests, law_relations the verdict; what must not change such a law
    models, generated,      whole sequences, ends included: toy models, what an engine makes of
    sequences, loops,       them, the verdict, names of faults; what must not change their law
    sequence_relations
    report, replays, view   findings as data, as files to repeat, as text
    certificate, map, chart the cells for others to check, and as a picture; sequences as one
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
