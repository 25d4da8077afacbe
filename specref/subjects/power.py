"""The power of the gate: every known fault and every honest rule, drawn in every way.

A check that was never seen to fail shows nothing. Here each fault is offered as a sampler in the
ways that samplers draw (`specref.subjects.programs.WAYS`): with torch, plainly or by a race, where
the tape reads its law; with NumPy or Python, where its law is learned from answers; by a hash,
where only its output is seen.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import log
from typing import Any

from specref.decode import output_law
from specref.dist import as_fraction, tv
from specref.faults import FAULTS, Fault
from specref.gate import check
from specref.gate.cases import Fixture, fixtures
from specref.gate.checks import band
from specref.gate.report import MEASURED
from specref.gate.session import PROFILES
from specref.rules import RULES
from specref.subjects import engines
from specref.subjects.programs import WAYS, HashChoices, TorchChoices, of_fault, of_rule

SAMPLERS = [*(name for name, rule in RULES.items() if not rule.off_path), *FAULTS]
"""Every sampler there is: rules that can be held to what a case holds, and faults."""


OVERLOOKED = log(1e6) / PROFILES["quick"].probes
"""What the probes of a quick run may miss, but for a risk of 1e-6, where no closer look follows: of
the law of a subject's own drafts."""


@dataclass(frozen=True)
class Seen:
    """What the gate says of a sampler that draws in one way.

    Attributes:
        verdict: of the report.
        fails: the claims that failed, and how; empty if none did.
        measured: whether its law was measured; else samples were counted.
        named: whether the fault is among those that the report says have the measured law.
        calls: runs that its law was read off, or rows by the claim that drew most.
    """

    verdict: str
    fails: str
    measured: bool
    named: bool
    calls: int


@dataclass(frozen=True)
class Row:
    """What the gate says of one fault or one rule.

    Attributes:
        name: the fault or the rule.
        base: the rule it is held to.
        honest: whether it should pass.
        seen: by the way it draws.
    """

    name: str
    base: str
    honest: bool
    seen: dict[str, Seen]

    @property
    def fails(self) -> str:
        """The claims that fail, and how, in the first way in which any does."""
        return next((seen.fails for seen in self.seen.values() if seen.fails), "")

    @property
    def named(self) -> str:
        """Whether each law that is measured and fails is known as this fault's, if there is one."""
        named = [seen.named for seen in self.seen.values() if seen.measured and seen.fails]
        return "" if self.honest or not named else "yes" if all(named) else "NO"

    @property
    def right(self) -> bool:
        """Whether each law that can be measured tells it for what it is."""
        if self.honest:
            return all(seen.verdict == "pass" for seen in self.seen.values())
        return all(
            bool(seen.fails and seen.measured and seen.named)
            for way, seen in self.seen.items()
            if measurable(FAULTS[self.name], way)
        )

    def told(self, way: str) -> str:
        """Return the depth that settled it in one way, and the calls; or what went wrong."""
        seen = self.seen[way]
        text = "measured" if seen.measured else "samples"
        if seen.verdict == "inconclusive":
            text = "inconclusive"
        elif self.honest != (seen.verdict == "pass"):
            text = "refuted" if self.honest else "missed"
        return f"{text}, {seen.calls:,}"


def measurable(fault: Fault, way: str) -> bool:
    """Whether the measured law must show a fault of samplers that draw in this way.

    The tape shows all. What is learned from answers shows formulas that are wrong; what a single
    value of a draw leads to, or a vanishing mass, only if it lies at the end of a draw.
    """
    if issubclass(WAYS[way], TorchChoices) or fault.kind == "law":
        return True
    if fault.kind == "loop":
        return False  # whole sequences are read off the tape, or counted
    return WAYS[way] is not HashChoices and any(
        _apart(fault, made)
        > (band(made.vocab, made.gamma, "float32") if fault.verify else OVERLOOKED)
        for made in fixtures(fault.rule.shape, False, fault.rule.width)
    )


def _apart(fault: Fault, made: Fixture) -> Fraction:
    """Return the TV between texts of a fault and what they are held to: lossy rules, to their own.

    The target goes on behind both.
    """
    base, length = RULES[fault.base], made.gamma + 1
    if base.lossless:
        return fault.deviation(made.target, made.draft, shape=made.shape, length=length)
    wrong, right = (
        output_law(rule, made.target, made.draft, shape=made.shape, length=length)
        for rule in (fault.rule, base)
    )
    return as_fraction(tv(wrong, right))


def row(name: str, ways: Sequence[str] = tuple(WAYS)) -> Row:
    """Gate one fault or one rule in several ways."""
    return _row(name, {way: _seen(name, way) for way in ways})


def rows(
    names: Sequence[str], ways: Sequence[str], jobs: int, done: Callable[[str], None]
) -> Iterator[Row]:
    """Yield the row of each rule or fault, in the order given; `done` is told of each."""
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(_seen, *zip(*product(names, ways), strict=True))
        for name in names:
            yield _row(name, {way: next(found) for way in ways})
            done(name)


def _row(name: str, seen: dict[str, Seen]) -> Row:
    honest = name in RULES
    return Row(name, name if honest else FAULTS[name].base, honest, seen)


def _sampler(name: str, choices: type) -> Any:
    """Return a rule or a fault as a subject: of rounds, of whole sequences, or of laws."""
    if name in RULES:
        return of_rule(name, choices=choices)
    fault = FAULTS[name]
    return (engines.of_fault if fault.kind in ("loop", "law") else of_fault)(fault, choices)


def _seen(name: str, way: str) -> Seen:
    report = check(_sampler(name, WAYS[way]))
    claims = dict.fromkeys(finding.claim for finding in report.failures)
    severities = dict.fromkeys(finding.severity for finding in report.failures)
    nearest = [finding.nearest_fault for finding in report.failures if finding.nearest_fault]
    about = ("joint", "sequences", "parameters")
    measured = any(f.claim in about and f.depth == MEASURED for f in report.findings)
    return Seen(
        report.verdict,
        f"{', '.join(claims)} ({', '.join(severities)})" if claims else "",
        measured,
        any(name in fault["matches"] for fault in nearest),
        report.calls if measured else max((f.calls for f in report.findings), default=0),
    )
