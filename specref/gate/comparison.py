"""Hold rounds on chosen cases to laws that are known exactly: measured where that can be done.

A `Check` is a mixture of cases and the law of what is read off the rounds on them. `Asked` measures
it with the instrument that could follow the subject; `counted` settles several at once by counts.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from specref.decode import complete, target_law
from specref.dist import as_fraction, tv
from specref.gate.cases import Case, Fixture
from specref.gate.cell import Measured
from specref.gate.checks import Mass, band, band_of, mixed
from specref.gate.evidence import rows_needed, weigh
from specref.gate.exact import Instrument
from specref.gate.report import MEASURED, SAMPLES, Finding, shown
from specref.gate.samples import FIRST_LOOK, continued
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import MOST_ROWS, Outcome, Problem, Subject
from specref.model import Model
from specref.stops import Text


def as_it_is(text: Text) -> Hashable:
    """Return the whole text: the default of what is read off a round."""
    return text


@dataclass(frozen=True)
class Check:
    """Rounds on a mixture of cases, and the law that is due.

    Attributes:
        label: of the cases, for people.
        drafts: cases with weights that sum to one.
        wanted: the exact law of what `read` makes of the texts.
        read: what is looked at.
        target: a model that continues each text to `length` tokens before it is read; None if
            texts are read as they were emitted.
        length: see there.
        rounding: what rounding may give instead of what is wanted, which is then sure; counts have
            to allow for it.
    """

    label: str
    drafts: tuple[tuple[Case, Fraction], ...]
    wanted: Mass
    read: Callable[[Text], Hashable] = as_it_is
    target: Model | None = None
    length: int = 0
    rounding: str = ""

    @property
    def band(self) -> float:
        """The largest TV that rounding explains."""
        return max(band_of(case) for case, _ in self.drafts)

    def law(self, laws: Sequence[Mapping[Any, Fraction]]) -> Mass:
        """Return the law of what is read, of the laws of the rounds on each case."""
        weights = (weight for _, weight in self.drafts)
        emitted = mixed(zip(laws, weights, strict=True))
        out: defaultdict[Any, Fraction] = defaultdict(Fraction)
        texts = {text: mass for text, mass in emitted.items() if not isinstance(text, Problem)}
        for text, mass in self._continued(texts).items():
            out[self.read(text)] += mass
        for outcome, mass in emitted.items():
            if isinstance(outcome, Problem):
                out[outcome] += mass
        return dict(out)

    def _continued(self, texts: Mass) -> Mass:
        if self.target is None:
            return texts
        model = self.target

        def target(context: Text) -> Any:
            return tuple(as_fraction(w) for w in model(context))

        return complete(texts, target, self.length)

    def see(self, outcome: Outcome, rng: Any) -> Hashable:
        """Return what is read off one round."""
        if isinstance(outcome, Problem):
            return outcome
        if self.target is not None:
            outcome = continued(outcome, self.target, self.length, rng)
        return self.read(outcome)


def noted(session: Session, case: Case) -> Case:
    """Return the case, whose exact laws are those of the type that the subject takes."""
    case.handed.add(session.dtype)
    return case


def over(session: Session, fixture: Fixture, drafts: tuple[tuple[Case, Fraction], ...]) -> Check:
    """Return the check that over all drafts, continued by the target, texts are the target's."""
    target, length = partial(fixture.target, dtype=session.dtype), fixture.gamma + 1
    wanted = {text: as_fraction(mass) for text, mass in target_law(target, length).items()}
    return Check("all drafts", drafts, wanted, target=target, length=length)


@dataclass
class Result:
    """What became of one check, or of several.

    Attributes:
        verdict: "pass", "fail" or "inconclusive": counts do not certify what the profile wants.
        depth: "measured law" or "samples".
        tv, calls: as in a finding.
        label: of the check that failed.
        wanted, got: laws of what was read, of a failure.
        where: operations behind it.
        problem: what went wrong instead of a round, if that is the failure.
    """

    verdict: str
    depth: str
    tv: float = 0.0
    calls: int = 0
    label: str = ""
    wanted: Mass = field(default_factory=dict)
    got: Mass = field(default_factory=dict)
    where: str = ""
    problem: str = ""

    def finding(self, claim: str, session: Session, text: str, data: dict[str, Any]) -> Finding:
        """Return the failure as a finding."""
        severity = "crash" if self.problem else "law"
        told = f"{text}: {self.problem}" if self.problem else text
        finding = Finding(claim, session.rule, self.depth, "fail", severity, self.tv, told, data)
        finding.expected, finding.measured = shown(self.wanted), shown(self.got)
        finding.where, finding.calls = self.where, self.calls
        return finding


class Asked:
    """Laws read off the subject by an instrument, within a budget of calls.

    Args:
        session: whose subject is asked.
        instrument: that could follow the subject; None if none could.

    Attributes:
        fine: whether measured laws are cheap and sharp enough for the larger cases.
        calls: asked so far.
    """

    def __init__(self, session: Session, instrument: Instrument | None) -> None:
        self.session, self.instrument = session, instrument
        self.fine = instrument is not None and instrument.sees_single_draws
        self.calls = 0
        self._known: dict[Case, Measured | None] = {}

    @property
    def _left(self) -> int:
        profile = self.session.profile
        # A claim gets a share of what there is for all laws of single rounds; where laws are
        # learned, a single one may take `runs` questions.
        return (profile.calls // 4 if self.fine else profile.runs // 2) - self.calls

    def law(self, case: Case) -> Measured | None:
        """Measure one round on a case; None if that proves nothing."""
        if self.instrument is None:
            return None
        if case not in self._known:
            self._known[case] = self._proved(lambda left: self.instrument.law(case, left))  # type: ignore[union-attr]
        return self._known[case]

    def together(self, subject: Subject, case: Any, rows: int) -> Measured | None:
        """Measure a call of several rows: the law of the tuples of their outcomes."""
        instrument = self.instrument
        if instrument is None or not instrument.reads_programs:
            return None

        def program(_: Any, seed: int) -> Any:
            return tuple(subject.sample(case, rows, seed))

        return self._proved(lambda left: instrument.program(program, left))

    def _proved(self, measure: Callable[[int], Measured]) -> Measured | None:
        if self._left <= 0:
            return None
        got = measure(self._left)
        self.calls += got.calls
        return got if got.exact else None

    def check(self, check: Check, subject: Subject | None = None) -> Result | None:
        """Compare the measured law with the one that is due; None if it cannot be measured.

        Args:
            check: the cases and the law.
            subject: in another state than the session's, such as switched off.
        """
        read: list[Measured] = []
        before = self.calls
        for case, _ in check.drafts:
            got = self.law(case) if subject is None else self.together(subject, case, 1)
            if got is None:
                return None
            read.append(got)
        laws = [_single(one.law) if subject else one.law for one in read]
        calls = self.calls - before
        seen = check.law(laws)
        missed = sum(
            float(weight) * one.missed for (_, weight), one in zip(check.drafts, read, strict=True)
        )
        gap = float(tv(seen, check.wanted))
        result = Result("pass", MEASURED, gap, calls, check.label, check.wanted, seen)
        if gap > check.band + missed:
            result.verdict = "fail"
            result.problem = next((str(out) for out in seen if isinstance(out, Problem)), "")
            if len(read) == 1 and subject is None:
                parted = {
                    out
                    for out in read[0].law
                    if isinstance(out, Problem) or not check.wanted.get(check.read(out))
                }
                result.where = read[0].where(parted or set(read[0].law))
        return result


def _single(law: Mapping[Any, Fraction]) -> Mass:
    """Return the law of the only row of a call."""
    return {rows[0]: mass for rows, mass in law.items()}


def refusal(subject: Subject, case: Case, seed: int, calls: int = 4) -> str:
    """Return what is no round, in every call on a case: an exception or a shape; or ""."""
    text = ""
    for number in range(calls):
        (outcome,) = subject.sample(case, 1, seed_of(seed, number))
        if not isinstance(outcome, Problem) or outcome.kind not in ("exception", "shape"):
            return ""
        text = str(outcome)
    return text


def counted(session: Session, checks: Sequence[Check], subject: Subject, seed: int) -> Result:
    """Draw rounds for several checks, each as often, and weigh what is seen against their laws.

    Args:
        session: whose profile says what a certificate is.
        checks: of one kind; a failure shows what all of them gave.
        subject: who draws.
        seed: of all draws.
    """
    wanted: Mass = {}
    for check in checks:
        part = dict(check.wanted)
        if check.rounding:
            size = max(len(case.p[0]) for case, _ in check.drafts)
            tokens = max(case.gamma + 1 for case, _ in check.drafts)
            slack = Fraction(band(size, tokens, session.dtype))
            part = {key: mass * (1 - slack) for key, mass in part.items()}
            part[check.rounding] = slack
        wanted |= {(check.label, key): mass / len(checks) for key, mass in part.items()}

    def draw(rows: int, seed: int, rng: Any) -> Iterator[Hashable]:
        for check, outcomes in _drawn(checks, subject, rows, seed, rng):
            yield from ((check.label, check.see(outcome, rng)) for outcome in outcomes)

    counts = tally(session, wanted, draw, seed)
    result, impossible = weighed(session, wanted, counts)
    if result.verdict == "fail":
        _show_worst(result, checks, counts, impossible)
    return result


def certified(session: Session) -> float:
    """Return the TV that counts have to certify: twice that of a claim that stands alone."""
    return 2 * session.profile.tv


Draw = Callable[[int, int, Any], Iterator[Hashable]]
"""A function of a number of rows, a seed and a random generator: what is seen in each row."""


def tally(session: Session, wanted: Mass, draw: Draw, seed: int) -> Counter[Any]:
    """Count what is drawn until the certificate is reached, or an alarm goes off."""
    need = rows_needed(len(wanted), certified(session))
    rng = np.random.default_rng(seed)
    counts: Counter[Any] = Counter()
    look = 0
    while counts.total() < need:
        rows = min(max(FIRST_LOOK, counts.total()), need - counts.total())
        counts.update(draw(rows, seed_of(seed, look), rng))
        look += 1
        # The alarm may be looked at any time; a broken sampler needs no more rows.
        if weigh(wanted, counts, session.profile.tv).alarm(session.tests):
            break
    return counts


def weighed(session: Session, wanted: Mass, counts: Counter[Any]) -> tuple[Result, Any]:
    """Return what counts say of an exact law, and what was seen although it cannot be, or None."""
    seen = weigh(wanted, counts, session.profile.tv)
    result = Result("pass", SAMPLES, seen.bound, seen.rows, wanted=wanted)
    if seen.alarm(session.tests):
        result.verdict, result.tv = "fail", seen.gap
        result.got = {key: Fraction(count, seen.rows) for key, count in counts.items()}
    elif seen.bound > certified(session):
        result.verdict = "inconclusive"
    return result, seen.impossible


def _drawn(
    checks: Sequence[Check], subject: Subject, rows: int, seed: int, rng: Any
) -> Iterator[tuple[Check, list[Outcome]]]:
    """Draw rounds on cases that are drawn by their weights."""
    cells = [(check, case, weight) for check in checks for case, weight in check.drafts]
    weights = np.array([float(weight) for _, _, weight in cells]) / len(checks)
    counts = rng.multinomial(rows, weights / weights.sum())
    for number, ((check, case, _), count) in enumerate(zip(cells, counts, strict=True)):
        for start in range(0, int(count), MOST_ROWS):
            n = min(MOST_ROWS, int(count) - start)
            yield check, subject.sample(case, n, seed_of(seed_of(seed, number), start))


def _show_worst(
    result: Result, checks: Sequence[Check], counts: Counter[Any], impossible: Any
) -> None:
    """Show a failure on the check with the impossible outcome, else on the one that parts most."""

    def own(check: Check) -> Mass:
        seen = {key: count for (label, key), count in counts.items() if label == check.label}
        return {key: Fraction(count, sum(seen.values())) for key, count in seen.items()}

    def parts(check: Check) -> tuple[bool, float]:
        known = impossible is not None and impossible[0] == check.label
        return known, float(tv(own(check), check.wanted))

    worst = max(checks, key=parts)
    result.label, result.wanted, result.got = worst.label, worst.wanted, own(worst)
    result.tv = parts(worst)[1]
    if impossible is not None and isinstance(impossible[1], Problem):
        result.problem = str(impossible[1])


def off(subject: Subject) -> Subject:
    """Return a lossy sampler with its switch off."""
    assert subject.off is not None
    return replace(subject, call=subject.off, decide=None)


def summary(
    session: Session,
    claim: str,
    what: str,
    held: Mapping[str, Sequence[Result]],
    refused: Mapping[str, str],
) -> Finding:
    """Return the finding that says what was looked at, and holds.

    Args:
        session: whose subject was.
        claim: of the finding.
        what: the name of what is counted, such as relations.
        held: results by name.
        refused: exceptions by name, of what the subject does not take.
    """
    results = [result for found in held.values() for result in found]
    sampled = [name for name, found in held.items() if any(r.depth == SAMPLES for r in found)]
    measured = [result for result in results if result.depth == MEASURED]
    finding = Finding(claim, session.rule, MEASURED if measured else SAMPLES, "pass")
    finding.calls = sum(result.calls for result in results)
    finding.tv = max(result.tv for result in measured or results)
    finding.message = f"{len(held)} {what}: {', '.join(held)}"
    if measured and sampled:
        finding.message += f"; by counts: {', '.join(sampled)}"
    for name, text in refused.items():
        finding.message += f"; {name}: it takes no such case, and is left alone ({text})"
    if any(result.verdict == "inconclusive" for result in results):
        finding.verdict = "inconclusive"
        finding.message += f"; the profile wants counts that certify {certified(session)}"
    elif measured and finding.tv > band(8, 8, "float32"):
        finding.verdict = "inconclusive"
        finding.message += f"; TV {finding.tv:.2g} may be rounding, which hides faults"
    elif measured and finding.tv:
        finding.severity = "numerics"
    return finding
