"""What the checks of one subject against one rule share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from specref.dist import as_fraction
from specref.gate.cases import Case, Fixture, OneLevel
from specref.gate.errors import UsageError
from specref.gate.report import Finding, Report
from specref.gate.subject import Subject
from specref.rules import RULES

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Profile:
    """Budgets of a run.

    Attributes:
        calls: largest number of runs on the tape for one claim; the claims about single rounds
            share the same runs.
        thorough: include the larger fixtures.
        audit_rows: real draws compared per fixture, where the subject computes on whole batches.
        audit_calls: the least of them, where it goes row by row.
        probes: random questions that confirm each law that is learned.
        runs: largest number of questions for one such law.
        tv: what a certificate from samples must reach.
    """

    calls: int
    thorough: bool
    audit_rows: int
    audit_calls: int
    probes: int
    runs: int
    tv: float


PROFILES = {
    "quick": Profile(
        calls=5_000,
        thorough=False,
        audit_rows=1 << 11,
        audit_calls=1 << 6,
        probes=1 << 8,
        runs=20_000,
        tv=0.05,
    ),
    "ci": Profile(
        calls=50_000,
        thorough=True,
        audit_rows=1 << 17,
        audit_calls=1 << 11,
        probes=1 << 13,
        runs=200_000,
        tv=0.02,
    ),
}
"""Every profile by name."""

TESTS = 52
"""Largest number of tests on samples for one rule: five claims on three fixtures, seven in profile
ci, the proposals, calls and rows that repeat each other, batches, relations."""


@dataclass
class Session:
    """One subject, held to one rule or to losslessness alone.

    Attributes:
        subject, rule: who is held to what; rule None means losslessness alone.
        report: where the findings go in the end.
        progress: is told what is being done.
        dtype: the type in which the subject takes its laws; known after the first call.
        escapes: what keeps the tape from reading the law.
        findings: what was found so far.
        doubts: audits of measured laws that real draws refuted.
    """

    subject: Subject
    rule: str | None
    report: Report
    progress: Progress
    dtype: str = "float32"
    escapes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)

    @property
    def profile(self) -> Profile:
        return PROFILES[self.report.profile]

    @property
    def seed(self) -> int:
        return self.report.seed

    @property
    def tests(self) -> int:
        """No run makes more tests on samples than this: what the risk of an alarm is divided by."""
        return TESTS * max(1, len(self.subject.rules))

    @property
    def lossy(self) -> bool:
        """Whether the rule is: it is then held to its own law, not to the target's."""
        return self.rule is not None and not RULES[self.rule].lossless

    @property
    def width(self) -> int | None:
        """Number of siblings, where the rule, or the drafter, is made for one number only."""
        made = [e for e in RULES.values() if e.draft is self.subject.drafter]
        made += [RULES[self.rule]] if self.rule else []
        return next((entry.width for entry in made if entry.width), None)

    @property
    def one_level(self) -> OneLevel:
        """The drafts of cases that come from no models: any, if the rule takes any."""
        free = self.rule is not None and RULES[self.rule].any_draft
        drafter = None if free else self.subject.drafter
        return OneLevel(self.rule, self.subject.shape, drafter, self.width)

    @property
    def one_hot_target(self) -> bool:
        """Whether the rule is made for targets that put mass 1 on one token."""
        return self.rule is not None and RULES[self.rule].one_hot_target

    def say(self, what: str) -> None:
        """Report progress."""
        self.progress(f"{self.rule or 'lossless'}: {what}")

    def fit(self, fixture: Fixture) -> Fixture:
        """Return the fixture on the domain of the rule."""
        return fixture.greedy() if self.one_hot_target else fixture

    def cases(self, fixture: Fixture) -> list[tuple[Case, Fraction]]:
        """Return every draft of a fixture as a case, with its probability."""
        try:
            drafts = fixture.drafts(self.subject.drafter, (), self.dtype)
            weights = [as_fraction(weight) for weight in drafts.values()]
        except (RuntimeError, TypeError) as error:  # no function of its choices, or floats
            raise UsageError(f"{self.subject.spec}.drafts cannot be enumerated: {error}") from None
        return [(fixture.case(d, self.rule), w) for d, w in zip(drafts, weights, strict=True)]

    def levels(self, fixture: Fixture) -> Case:
        """Return a case whose laws depend on the depth alone, one row each: for a drafter."""
        case, _ = self.cases(fixture)[0]
        depth = fixture.gamma
        return replace(
            case,
            p=case.p[: depth + 1],
            q=case.q[: depth + 1],
            tokens=case.tokens[:depth],
            parents=tuple(range(depth)),
        )

    def escape(self, reasons: Iterable[str]) -> None:
        """Note why a measured law would prove nothing."""
        self.escapes += [reason for reason in reasons if reason not in self.escapes]
