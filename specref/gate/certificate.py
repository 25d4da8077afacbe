"""The certificate: what was measured, written so that somebody else can check it.

It holds the cells of every draft that the joint law is made of, and what follows from them. It is
JSON, and every number in it is exact:

    format, subject, name, profile, versions
    left_out    [rule, pair of models, why]: what is not in it, since it was not measured to the end
    draws       the kinds of draws, by number: n for an integer 0 <= k < n, or weights of a choice
    rules       for each: rule, dtype, drafts (who draws them), audit, and
    models      for each pair of models: fixture (its name), p and q (the laws that are handed over,
                by the token before, floats in hexadecimal), shape (the widths of the draft, level
                by level), tv, verdict, and
    cases       for each draft: tokens, parents, weight (its probability), missed, law, and
    cells       [[draw, low, high], ...], outcome, mass: what comes out on low <= k < high

`specref/checker.py` checks it, alone.
"""

import json
from collections.abc import Mapping
from typing import Any

from specref.checker import WAYS
from specref.gate import checks
from specref.gate.cases import Fixture, rounded
from specref.gate.cell import Cell
from specref.gate.checks import Measurement, Reading
from specref.gate.report import Report
from specref.gate.subject import Outcome, Problem
from specref.gate.variable import Pick, Race, Variable

FORMAT = "specref-certificate/1"


def certificate(report: Report) -> dict[str, Any]:
    """Return the certificate of a run as JSON data, without rules if nothing was measured."""
    numbers: dict[Any, int] = {}
    rules = [_part(report, made, numbers) for made in report.measurements]
    return {
        "format": FORMAT,
        "subject": report.subject,
        "name": report.name,
        "profile": report.profile,
        "versions": report.versions,
        "left_out": [
            [made.rule or "lossless", fixture.name, "the budget of calls does not reach"]
            for made in report.measurements
            for fixture, group in made.groups
            if not _whole(group)
        ],
        "draws": list(numbers),
        "rules": rules,
    }


def dumped(data: Mapping[str, Any]) -> str:
    """Return a certificate as JSON text: compact, with a line for each pair of models and draft."""
    text = json.dumps(data, separators=(",", ":"))
    for start in ('{"fixture":', '{"tokens":'):  # in a string the quotes would be escaped
        text = text.replace(start, "\n" + start)
    return text + "\n"


def _whole(group: list[Reading]) -> bool:
    return all(reading.measured.complete for reading in group)


def _part(report: Report, made: Measurement, numbers: dict[Any, int]) -> dict[str, Any]:
    drafts = made.drafts or report.drafts
    audits = [f for f in report.findings if (f.claim, f.rule) == ("audit", made.rule)]
    return {
        "rule": made.rule or "lossless",
        "dtype": made.dtype,
        "drafts": drafts if drafts in WAYS else "own",
        "audit": [{"seed": report.seed, "bound": f.bound, "result": f.message} for f in audits],
        "models": [
            _fixture(fixture, group, made.dtype, numbers)
            for fixture, group in made.groups
            if _whole(group)
        ],
    }


def _fixture(
    fixture: Fixture, group: list[Reading], dtype: str, numbers: dict[Any, int]
) -> dict[str, Any]:
    found = checks.joint(fixture, group, dtype)
    p, q = (
        {context: rounded(row, dtype) for context, row in table.items()}
        for table in (fixture.p, fixture.q)
    )
    data = Fixture(fixture.name, p, q, fixture.shape).to_json()
    chain = isinstance(fixture.shape, int)
    return {
        **data,
        "shape": [1] * fixture.gamma if chain else data["shape"],
        "tv": str(found.tv),
        "verdict": "FAIL" if found.fails else "numerics" if found.tv else "exact",
        "cases": [_case(reading, numbers) for reading in group],
    }


def _case(reading: Reading, numbers: dict[Any, int]) -> dict[str, Any]:
    case, measured = reading.case, reading.measured
    return {
        "tokens": case.tokens,
        "parents": case.parents,
        "weight": str(reading.weight),
        "missed": measured.missed,
        "law": [[_outcome(outcome), str(mass)] for outcome, mass in measured.law.items()],
        "cells": [_cell(cell, numbers) for cell in measured.cells],
    }


def _cell(cell: Cell, numbers: dict[Any, int]) -> list[Any]:
    sides = [
        [numbers.setdefault(_kind(variable), len(numbers)), low, high]
        for variable, (low, high) in zip(cell.variables, cell.box, strict=True)
    ]
    return [sides, _outcome(cell.outcome), str(cell.mass)]


def _outcome(outcome: Outcome) -> Any:
    return str(outcome) if isinstance(outcome, Problem) else outcome


def _kind(variable: Variable) -> Any:
    """Return what the checker needs to know of a variable; hashable."""
    if isinstance(variable, Pick):
        return tuple(str(weight) for weight in variable.weights)
    if isinstance(variable, Race):
        return tuple(str(runner.weight) for runner in variable.runners)
    return variable.size
