"""The power of the gate: every known fault and every honest rule, at each depth.

A check that was never seen to fail shows nothing. Here each fault is offered as a sampler twice:
drawing with torch, where the tape reads its law, and drawing with NumPy, where only its output is
seen.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from specref.faults import FAULTS
from specref.gate import Report, check
from specref.rules import RULES
from specref.subjects.programs import NumpyChoices, TorchChoices, of_fault, of_rule


@dataclass(frozen=True)
class Row:
    """What the gate says of one sampler.

    Attributes:
        name: the fault or the rule.
        base: the rule it is held to.
        honest: whether it should pass.
        measured, samples: what was found at either depth: "pass", or the failed claims.
        named: whether the fault's own name is among the known faults that the report gives; at the
            measured law.
        calls: runs of the sampler on the tape.
        rows: rows drawn at the depth of samples, by the claim that drew most.
    """

    name: str
    base: str
    honest: bool
    measured: str
    named: bool
    calls: int
    samples: str
    rows: int

    @property
    def right(self) -> bool:
        """Whether the measured law tells it for what it is."""
        return self.measured == "pass" if self.honest else self.measured != "pass" and self.named


def row(name: str) -> Row:
    """Gate one fault or one rule at both depths."""
    honest = name in RULES
    measured, samples = (
        check(of_rule(name, choices=choices) if honest else of_fault(FAULTS[name], choices))
        for choices in (TorchChoices, NumpyChoices)
    )
    named = any(
        name in (finding.nearest_fault or {}).get("matches", ()) for finding in measured.failures
    )
    return Row(
        name,
        name if honest else FAULTS[name].base,
        honest,
        _said(measured),
        named,
        measured.calls,
        _said(samples),
        max((finding.calls for finding in samples.findings), default=0),
    )


def _said(report: Report) -> str:
    """Return the verdict in a few words: the claims that failed, and how."""
    if report.verdict != "fail":
        return report.verdict
    severities = dict.fromkeys(finding.severity for finding in report.failures)
    claims = dict.fromkeys(finding.claim for finding in report.failures)
    return f"{', '.join(claims)} ({', '.join(severities)})"


def rows(names: Iterable[str], jobs: int, done: Callable[[str], None]) -> Iterator[Row]:
    """Yield the row of each rule or fault, in the order given; `done` is told of each."""
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(row, names):
            done(found.name)
            yield found
