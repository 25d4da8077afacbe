"""What the checks of one subject against one rule share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from specref.dist import as_fraction
from specref.gate.cases import Case, Fixture
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
        audit_rows: real draws compared per fixture, where the subject draws row by row.
        audit_calls: calls of one row compared per fixture, where it does not.
        tv: what a certificate from samples must reach.
    """

    calls: int
    thorough: bool
    audit_rows: int
    audit_calls: int
    tv: float


PROFILES = {
    "quick": Profile(calls=5_000, thorough=False, audit_rows=1 << 17, audit_calls=1 << 10, tv=0.05),
    "ci": Profile(calls=50_000, thorough=True, audit_rows=1 << 20, audit_calls=1 << 14, tv=0.02),
}
"""Every profile by name."""


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
    """

    subject: Subject
    rule: str | None
    report: Report
    progress: Progress
    dtype: str = "float32"
    escapes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def profile(self) -> Profile:
        return PROFILES[self.report.profile]

    @property
    def seed(self) -> int:
        return self.report.seed

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
        drafts = fixture.drafts(self.subject.drafter, (), self.dtype)
        return [(fixture.case(d, self.rule), as_fraction(weight)) for d, weight in drafts.items()]

    def escape(self, reasons: Iterable[str]) -> None:
        """Note why a measured law would prove nothing."""
        for reason in reasons:
            for known in (self.escapes, self.report.escapes):
                if reason not in known:
                    known.append(reason)
