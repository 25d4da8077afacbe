"""The depth of the measured law: the subject's own law, cell by cell, held to the claims."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import log, sqrt
from typing import Any, Protocol

from specref.choice import Choose, law
from specref.decode import output_law
from specref.dist import as_fraction
from specref.dist import tv as distance
from specref.draft import flat
from specref.gate import checks, diagnose, samples
from specref.gate.cases import (
    Case,
    Fixture,
    exact,
    fixtures,
    near_ties,
    rounds_fixture,
    sampled_fixtures,
    tiny_masses,
)
from specref.gate.cell import Measured
from specref.gate.checks import Deviation, JointDeviation, Measurement, Reading
from specref.gate.evidence import ALARM, weigh
from specref.gate.grid import parameter_fixtures
from specref.gate.report import MEASURED, Finding, NearestFault, shown
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import MOST_ROWS, Outcome, Problem, Proposal
from specref.rules import RULES

Groups = list[tuple[Fixture, list[Reading]]]

NOT_THIS_RULE = "it is lossless, but not this rule"
"""What makes a failure one of contract."""

MOST_SHARPENED = 2
"""So many doubtful cases get a closer look; the others stay in doubt."""

Program = Callable[[Choose, int], Any]
"""A function of `choose`, for what the gate draws, and of the seed that the subject is given."""


class Instrument(Protocol):
    """What reads the law of a subject off the subject.

    Attributes:
        sees_single_draws: whether it finds outcomes that a single value of a draw leads to.
        reads_programs: whether it reads programs around the subject, of several calls.
    """

    sees_single_draws: bool
    reads_programs: bool

    def ready(self) -> AbstractContextManager[Any]:
        """Set up what all measurements of a run need."""

    def law(self, case: Case, budget: int) -> Measured:
        """Measure one round on a case."""

    def program(self, program: Program, budget: int) -> Measured:
        """Measure a program."""

    def sharper(self, case: Case, tv: float) -> Measured | None:
        """Measure one round again, missing less than `tv`; None if that is out of reach."""

    def audit(self, groups: Groups, others: list[Reading]) -> Finding:
        """Find out how far the readings may be off; "inconclusive" if they prove nothing."""

    def repeats(self, case: Case) -> str:
        """Return how a state of a generator is used twice, or ""."""

    def shares(self, case: Case) -> str:
        """Return how one draw of a call decides several of its rows, or ""."""


class Exact:
    """The checks of one session on measured laws."""

    def __init__(self, session: Session, instrument: Instrument) -> None:
        self.session, self.instrument = session, instrument
        self.subject, self.rule = session.subject, session.rule
        self.readings: list[Reading] = []
        self.left = session.profile.calls

    def judge(self) -> bool:
        """Add findings on every claim; False, and none, if the instrument cannot follow."""
        session = self.session
        groups = self._groups()
        if session.escapes:
            return False
        found = self.instrument.audit(groups, [r for r in self.readings if not r.weight])
        if found.verdict != "pass":
            session.doubts.append(found)
            session.escape([found.message])
            return False
        session.findings.append(found)
        made = Measurement(self.rule, session.dtype, groups, self.subject.drafts)
        session.report.measurements.append(made)
        self._sharpen()
        self.support(self.readings)
        if self.rule:
            self.conditional(self.readings)
        shape, least = self.subject.shape, not self.instrument.sees_single_draws
        mixed = session.fit(sampled_fixtures(shape, session.width)[0])
        two = session.fit(rounds_fixture(shape, least, session.width))
        if self.instrument.reads_programs:
            if self.subject.propose is not None:
                self.proposal(session.levels(mixed))
            self.joint(groups)
            self._exhausted()
            self.rounds(two)
            self.stream(two)
        else:
            self.joint(groups)
            self._exhausted()
            text = "decide is given its draws: a round has nothing to hand on to the next"
            session.findings.append(
                Finding("rounds", self.rule, "", "not applicable", message=text)
            )
            session.findings += samples.around(session, mixed)
        if all(f.claim != "stream" or f.verdict == "pass" for f in session.findings):
            self._batches([r for _, group in groups[-2:] for r in _likeliest(group, 4)])
        return True

    def again(self, claim: str, data: dict[str, Any]) -> bool:
        """Repeat one claim on the case or the fixture of an earlier failure, as `judge` does."""
        if "fixture" in data:
            fixture = Fixture.from_json(data)
            if claim in ("rounds", "stream"):
                (self.rounds if claim == "rounds" else self.stream)(fixture)
                return not self.session.escapes
            group = self.read(fixture)
            if claim == "joint":
                self.joint([(fixture, group)])
                return not self.session.escapes
        else:
            case = Case.from_json(data)
            if claim == "proposal":
                self.proposal(case)
                return not self.session.escapes
            group = [Reading(case, Fraction(0), self.law(case), drafter=self.subject.drafter)]
        if self.session.escapes:
            return False
        self.readings = group
        if claim == "audit":
            self._batches(group)
            return True
        self.support(group)
        if self.rule:
            self.conditional(group)
        return True

    def measure(self, program: Program) -> Measured:
        """Measure a program within the budget of a claim."""
        return self._noted(self.instrument.program(program, self.session.profile.calls))

    def law(self, case: Case) -> Measured:
        """Measure one round on a case."""
        got = self._noted(self.instrument.law(case, max(1, self.left)))
        self.left -= got.calls
        return got

    def _noted(self, got: Measured) -> Measured:
        self.session.report.calls += got.calls
        self.session.report.cells += len(got.cells)
        self.session.escape(got.escapes)
        return got

    def read(self, fixture: Fixture) -> list[Reading]:
        """Measure every draft of a fixture."""
        found: list[Reading] = []
        for case, weight in self.session.cases(fixture):
            found.append(Reading(case, weight, self.law(case), drafter=self.subject.drafter))
            if self.session.escapes:
                break
        return found

    def _groups(self) -> Groups:
        """Measure everything that claims about one round look at, smallest first."""
        session = self.session
        groups: Groups = []
        shape, thorough = self.subject.shape, session.profile.thorough
        listed = fixtures(shape, thorough, session.width)
        # Before the last two, on which calls of many rows are looked at.
        listed[-2:-2] = parameter_fixtures(shape, thorough, session.width)
        todo = [session.fit(f) for f in listed]
        if not self.instrument.sees_single_draws:
            todo = [f for f in todo if f.vocab == 2 or f.gamma > 1 or "grid" not in f.name]
        for number, fixture in enumerate(todo, start=1):
            session.say(f"{fixture.name}, {number}/{len(todo)}")
            groups.append((fixture, self.read(fixture)))
            if session.escapes:
                return groups
        self.readings = [reading for _, group in groups for reading in group]
        if not session.one_hot_target:
            session.say("near-ties and tiny masses")
            for make in (near_ties, tiny_masses):
                for case in make(session.one_level):
                    got, none = self.law(case), Fraction(0)
                    self.readings.append(Reading(case, none, got, drafter=self.subject.drafter))
        return groups

    def _exhausted(self) -> None:
        """Take back what was passed on laws that the budget did not reach."""
        short = sum(not reading.measured.complete for reading in self.readings)
        if not short:
            return
        calls = self.session.profile.calls
        for finding in self.session.findings:
            if finding.verdict == "pass" and finding.depth == MEASURED:
                finding.verdict, finding.severity, finding.tv = "inconclusive", "", None
                finding.message = (
                    f"{short} of {len(self.readings)} cases lie beyond the budget of {calls} calls"
                )

    # Claims

    def _batches(self, readings: list[Reading]) -> None:
        """Hold calls of many rows to the law that was measured on calls of one."""
        rows = 256 if self.instrument.sees_single_draws else MOST_ROWS  # a blurred law needs more
        for number, reading in enumerate(readings):
            seed = seed_of(self.session.seed, 1_000 + number)
            if any(isinstance(outcome, Problem) for outcome in reading.got):
                continue  # it takes all rows of a call with it
            counts = Counter(self.subject.sample(reading.case, rows, seed))
            if not _apart(reading, counts, self.session.tests * len(readings)):
                continue
            found = self.session.findings
            found[:] = [finding for finding in found if finding.claim != "audit"]
            text = f"calls of {rows} rows follow another law than calls of one row"
            if not self.instrument.reads_programs:
                text = "sample follows another law than decide"
            severity = "law"
            problem = next((out for out in counts if isinstance(out, Problem)), None)
            if problem is not None:
                severity, text = "crash", f"in calls of {rows} rows: {problem}"
            gap = distance({out: c / rows for out, c in counts.items()}, reading.got)
            failure = Finding("audit", self.rule, MEASURED, "fail", severity, float(gap), text)
            failure.case = reading.case.to_json()
            failure.expected = shown(reading.got)
            failure.measured = shown({out: Fraction(c, rows) for out, c in counts.items()})
            found.append(failure)
            return

    def _sharpen(self) -> None:
        """Ask more where what was missed could explain a deviation, or hide that there is none."""

        def gap(reading: Reading) -> float:
            return float(distance(reading.got, reading.wanted)) if reading.defined else 0.0

        doubtful = [r for r in self.readings if checks.band_of(r.case) < gap(r) <= 2 * r.limit]
        for reading in sorted(doubtful, key=gap, reverse=True)[:MOST_SHARPENED]:
            self.session.say("a closer look")
            sharper = self.instrument.sharper(reading.case, gap(reading) / 2)
            if sharper is not None:
                reading.read_again(self._noted(sharper))

    def support(self, readings: list[Reading]) -> None:
        """Every draw gives a token that the target allows."""
        found = checks.support(readings)
        for deviation in found:
            edge = deviation.edge
            problem = isinstance(next(iter(deviation.outcomes)), Problem)
            severity = "edge" if edge else "crash" if problem else "law"
            exactly = str(deviation.tv)
            size = exactly if len(exactly) < 40 else f"{float(deviation.tv):.3g}"
            text = f"{deviation.kind}, with probability {size}"
            finding = self._failure("support", deviation, severity, text)
            if edge:
                finding.nearest_fault = diagnose.nearest_edge(deviation, self.subject, self.rule)
            self.session.findings.append(finding)
        if not found:
            self._pass("support", 0.0, f"{len(readings)} cases")

    def conditional(self, readings: list[Reading]) -> None:
        """On each draft: the rule's chances of acceptance, its residual, the bonus."""
        tests: dict[str, tuple[Callable[[Iterable[Reading]], list[Deviation]], str]] = {
            "acceptance": (checks.acceptance, "accepts with other chances than the rule"),
            "residual": (checks.residual, "corrects from another law than the rule's residual"),
            "bonus": (checks.bonus, "draws the bonus from another law than the target's last row"),
        }
        if self.session.lossy:
            tests["bonus"] = checks.bonus, "draws the bonus from another law than the rule's"
        for claim, (test, text) in tests.items():
            found = test(readings)
            wrong = [d for d in found if d.fails]
            bad = next((d for d in wrong if not d.edge), wrong[0] if wrong else None)
            if bad is None:
                worst = max((float(d.tv) for d in found), default=0.0)
                self._pass(claim, worst, f"{len(found)} cases")
            else:
                severity = "law"
                if bad.edge:
                    severity = "edge"
                    text += f", on a draft of probability {float(bad.reading.chance):.2g}"
                self.session.findings.append(self._failure(claim, bad, severity, text))

    def joint(self, groups: Groups) -> None:
        """Over all drafts, continued by the target: the target's joint law.

        A rule that is lossy has a law of its own, on drafts that it does not refuse.
        """
        own, dtype = self.session.lossy, self.session.dtype
        if own:
            groups = [(f, group) for f, group in groups if all(r.defined for r in group)]
        if not groups:
            self._undefined("joint")
            return
        worst, lossy = 0.0, Fraction(0)
        for fixture, group in groups:
            found = checks.joint(fixture, group, dtype, own)
            lossy = max(lossy, found.lossy)
            if found.fails:
                self.readings = self.readings or group
                failure = self._texts("joint", found)
                if own and not any(checks.joint(f, g, dtype).fails for f, g in groups):
                    failure.severity = "contract"
                    failure.message += f"; {NOT_THIS_RULE}"
                self.session.findings.append(failure)
                return
            worst = max(worst, float(found.tv))
        calls = sum(reading.measured.calls for _, group in groups for reading in group)
        tokens = max(fixture.gamma + 1 for fixture, _ in groups)
        text = f"{len(groups)} pairs of models, up to {tokens} tokens{self._lossy(lossy)}"
        self._pass("joint", worst, text, calls)

    def _lossy(self, tv: Fraction) -> str:
        """Return what is said of a rule that is lossy: by how much, whoever computes it."""
        if not self.session.lossy:
            return ""
        return f"; {self.rule} is lossy by TV {float(tv):.6g} on its own, and held to its own law"

    def rounds(self, fixture: Fixture) -> None:
        """Two rounds in one program, so that whatever is carried over shows in the law."""
        self.session.say("two rounds")
        length, dtype = fixture.gamma + 2, self.session.dtype

        def program(choose: Choose, seed: int) -> Outcome:
            text: tuple[int, ...] = ()
            for number in range(2):
                if len(text) >= length:
                    break
                root = self.subject.drafter(
                    lambda context: fixture.target(context, dtype),
                    lambda context: fixture.draft(context, dtype),
                    fixture.shape,
                    choose,
                    text,
                )
                case = fixture.case(flat(root), self.rule, text)
                (out,) = self.subject.sample(case, 1, seed_of(seed, number))
                if isinstance(out, Problem):
                    return out
                text += out
            return text

        got = self.measure(program)
        if not got.exact:
            self._open("rounds", got)
            return
        own = self._two_rounds(fixture, length) if self.session.lossy else None
        found = checks.fixture_texts(fixture, got.law, length, dtype, got.missed, own)
        if found.fails:
            failure = self._texts("rounds", found, got.calls)
            if own and not checks.fixture_texts(fixture, got.law, length, dtype, got.missed).fails:
                failure.severity = "contract"
                failure.message += f"; {NOT_THIS_RULE}"
            self.session.findings.append(failure)
        else:
            text = f"two rounds, {length} tokens{self._lossy(found.lossy)}"
            self._pass("rounds", float(found.tv), text, got.calls)

    def _two_rounds(self, fixture: Fixture, length: int) -> dict[Any, Fraction]:
        """Return the law of the texts of two rounds of the declared rule."""
        assert self.rule is not None
        dtype = self.session.dtype
        found = output_law(
            replace(RULES[self.rule], draft=self.subject.drafter),
            lambda context: fixture.target(context, dtype),
            lambda context: fixture.draft(context, dtype),
            shape=fixture.shape,
            length=length,
            rounds=2,
        )
        return {text: as_fraction(mass) for text, mass in found.items()}

    def proposal(self, case: Case) -> None:
        """The q-contract, and then the joint law on the subject's own drafts."""
        self.session.say("its own drafts")

        def propose(choose: Choose, seed: int) -> Any:
            got = self.subject.proposals(case, 1, seed)
            return got if isinstance(got, Problem) else got[0]

        got = self.measure(propose)
        if not got.exact:
            self._open("proposal", got)
            return
        problem = next((out for out in got.law if isinstance(out, Problem)), None)
        if problem is not None:
            text, data = str(problem), case.to_json()
            self.session.findings.append(
                Finding("proposal", self.rule, MEASURED, "fail", "crash", 1.0, text, data)
            )
            return
        laws: dict[Any, Fraction] = dict(got.law)
        limit = checks.band(case.vocab, case.gamma, self.session.dtype) + got.missed
        gap = 0.0
        if self.rule is None or RULES[self.rule].drafts_from_q:
            found = checks.contract(laws, self._siblings)
            gap = float(found.tv)
            if gap > limit:
                self._broken(case, laws, found, limit, got.calls)
                return
        self._own_drafts(case, laws, gap, got.calls)

    def _siblings(self, row: tuple[float, ...], count: int) -> dict[tuple[int, ...], Fraction]:
        """Return the law of the tokens that are drawn together from a declared row of q."""
        q = exact(row, "float64")
        shape: Any = 1 if self.subject.shape == "chain" else (count,)

        def drawn(choose: Choose) -> tuple[int, ...]:
            root = self.subject.drafter(lambda _: q, lambda _: q, shape, choose, ())
            return tuple(x for x, _ in root.children)

        return {tokens: as_fraction(mass) for tokens, mass in law(drawn).items()}

    def _broken(
        self,
        case: Case,
        laws: dict[Proposal, Fraction],
        found: checks.Contract,
        limit: float,
        calls: int,
    ) -> None:
        tokens: dict[tuple[int, ...], Fraction] = {}
        for draft, mass in laws.items():
            tokens[draft.tokens] = tokens.get(draft.tokens, Fraction(0)) + mass
        gap = float(distance(found.got, found.wanted))
        finding = Finding("proposal", self.rule, MEASURED, "fail", "contract", gap)
        finding.message = "its drafts do not follow the q that it declares"
        finding.case, finding.calls = case.to_json(), calls
        finding.expected, finding.measured = shown(found.wanted), shown(found.got)
        if case.chain:
            finding.nearest_fault = diagnose.nearest_drafter(tokens, case, limit)
        self.session.findings.append(finding)

    def _own_drafts(
        self, case: Case, laws: dict[Proposal, Fraction], gap: float, calls: int
    ) -> None:
        """Verify what the subject itself drafted: draws of both must not be mixed up."""

        def program(choose: Choose, seed: int) -> Outcome:
            got = self.subject.proposals(case, 1, seed)
            if isinstance(got, Problem):
                return got
            own = case.with_draft(got[0].tokens, got[0].parents, got[0].q)
            return self.subject.sample(own, 1, seed_of(seed, 1))[0]

        got = self.measure(program)
        if not got.exact:
            self._open("proposal", got)
            return
        own = self._rule_on(case, laws) if self.session.lossy else None
        if own is None and self.session.lossy:
            self._undefined("proposal", calls + got.calls)
            return
        found = checks.case_texts(case, got.law, got.missed, own)
        if found.fails:
            finding = self._texts("proposal", found, calls + got.calls)
            whose = "the rule's own" if self.session.lossy else "the target's"
            finding.message = f"verified on its own drafts, the joint law is not {whose}"
            self.session.findings.append(finding)
        else:
            text = f"the q-contract, and {case.gamma + 1} tokens on its own drafts"
            self._pass("proposal", max(gap, float(found.tv)), text, calls + got.calls)

    def _rule_on(self, case: Case, laws: dict[Proposal, Fraction]) -> dict[Any, Fraction] | None:
        """Return the law of the declared rule on the subject's drafts; None if it refuses some."""
        assert self.rule is not None
        parts = []
        for draft, weight in laws.items():
            own = case.with_draft(draft.tokens, draft.parents, draft.q)
            masses = checks.rule_law(RULES[self.rule], own.root())
            if masses is None:
                return None
            parts.append((masses, weight))
        return checks.mixed(parts)

    def stream(self, fixture: Fixture) -> None:
        """No generator state is used twice, and two rows of a call are independent."""
        session = self.session
        session.say("streams")
        case, _ = max(session.cases(fixture), key=lambda pair: pair[1])
        text = self.instrument.repeats(case)
        tv, calls = 0.0, 0
        if not text:
            single = self.law(case)

            def both(choose: Choose, seed: int) -> Any:
                return tuple(self.subject.sample(case, 2, seed))

            pair = self.measure(both)
            calls = single.calls + pair.calls
            if not single.exact or not pair.exact:
                self._open("stream", pair if single.exact else single)
                return
            # An exception takes all rows of a call with it; that is the business of `support`.
            one = {a: x for a, x in single.law.items() if not isinstance(a, Problem)}
            pairs: dict[Any, Fraction] = dict(pair.law)
            two = {ab: x for ab, x in pairs.items() if not isinstance(ab[0], Problem)}
            product = {(a, b): x * y for a, x in one.items() for b, y in one.items()}
            tv = float(distance(two, product))
            missed = 2 * single.missed + pair.missed
            if tv > 2 * checks.band_of(case) + missed:
                text = "two rows of one call are not independent"
            else:
                text = self.instrument.shares(case)
        if text:
            data = fixture.to_json()
            session.findings.append(
                Finding("stream", self.rule, MEASURED, "fail", "stream", tv, text, data)
            )
        else:
            self._pass("stream", tv, "states at every draw, and the rows of a call", calls)

    # Findings

    @cached_property
    def _named(self) -> NearestFault | None:
        """The known faults with the measured law."""
        self.session.say("looking for a known fault")
        return diagnose.nearest(self.readings, self.subject, self.rule)

    def _pass(self, claim: str, tv: float, text: str, calls: int = 0) -> None:
        finding = Finding(claim, self.rule, MEASURED, "pass", "", tv, text, calls=calls)
        if tv > checks.band(8, 8, "float32"):
            # Half precision, or few probes, explain so much that a wrong formula could hide in it.
            finding.verdict = "inconclusive"
            finding.message = f"no more than rounding in {self.session.dtype}, which hides faults"
            if not self.instrument.sees_single_draws:
                finding.message = f"TV {tv:.2g} may be what probes missed; profile ci asks more"
        elif tv:
            finding.severity = "numerics"
        self.session.findings.append(finding)

    def _open(self, claim: str, got: Measured) -> None:
        reason = got.escapes[0] if got.escapes else f"more than {got.calls} calls are needed"
        self.session.findings.append(
            Finding(claim, self.rule, MEASURED, "inconclusive", message=reason, calls=got.calls)
        )

    def _undefined(self, claim: str, calls: int = 0) -> None:
        text = f"{self.rule} has no law of its own on such drafts"
        self.session.findings.append(
            Finding(claim, self.rule, MEASURED, "inconclusive", message=text, calls=calls)
        )

    def _failure(self, claim: str, d: Deviation, severity: str, text: str) -> Finding:
        return Finding(
            claim,
            self.rule,
            MEASURED,
            "fail",
            severity,
            float(d.tv),
            text,
            d.reading.case.to_json(),
            shown(d.reading.wanted) if d.reading.defined else None,
            shown(d.reading.got),
            self._named if severity == "law" else None,
            d.reading.measured.where(set(d.outcomes), last=claim in ("residual", "bonus")),
            calls=d.reading.measured.calls,
        )

    def _texts(self, claim: str, found: JointDeviation, calls: int = 0) -> Finding:
        at = found.first_position
        seen = f"first seen at token {at}" if at else "seen in the joint law only"
        whose = f"not that of {self.rule}" if self.session.lossy else "not the target's"
        return Finding(
            claim,
            self.rule,
            MEASURED,
            "fail",
            "law",
            float(found.tv),
            f"on {found.name}, the law is {whose}, {seen}{self._lossy(found.lossy)}",
            found.data,
            shown(found.wanted),
            shown(found.got),
            self._named if self.readings else None,
            calls=calls,
        )


def _likeliest(group: list[Reading], count: int) -> list[Reading]:
    return sorted(group, key=lambda reading: reading.weight, reverse=True)[:count]


def _apart(reading: Reading, counts: Counter[Outcome], tests: int) -> bool:
    """Whether counts refute that calls follow the measured law, up to what probes missed of it.

    TV(empirical, law) exceeds TV(truth, law) <= missed by at most sqrt(K/n)/2, its mean, and
    sqrt(ln(tests/ALARM)/(2n)), its fluctuation: as in `evidence.certified_tv`, from the other side.
    """
    missed, rows = reading.measured.missed, counts.total()
    if not missed:
        return weigh(reading.got, counts, 0.05).alarm(tests)
    gap = float(distance({out: count / rows for out, count in counts.items()}, reading.got))
    outcomes = len(reading.got.keys() | counts.keys())
    return gap > missed + sqrt(outcomes / rows) / 2 + sqrt(log(tests / ALARM) / (2 * rows))
