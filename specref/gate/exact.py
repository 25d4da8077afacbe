"""The depth of the measured law: the subject's own law, cell by cell, held to the claims."""

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property
from math import log
from typing import Any

from specref.dist import tv as distance
from specref.draft import flat
from specref.gate import checks, diagnose, stream
from specref.gate.audit import Audit, audit
from specref.gate.cases import Case, Fixture, fixtures, near_ties, rounds_fixture, tiny_masses
from specref.gate.checks import Deviation, JointDeviation, Reading
from specref.gate.evidence import ALARM, weigh
from specref.gate.measure import Measured, Program, measure
from specref.gate.report import MEASURED, Finding, shown
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import Outcome, Problem
from specref.gate.tape import Tape

Groups = list[tuple[Fixture, list[Reading]]]


class Exact:
    """The checks of one session on measured laws."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.subject, self.rule = session.subject, session.rule
        self.readings: list[Reading] = []
        self.left = session.profile.calls

    def judge(self) -> bool:
        """Add findings on every claim; False, and none, if the tape cannot follow the subject."""
        groups = self._groups()
        if self.session.escapes or not self._audit(groups):
            return False
        self.support(self.readings)
        if self.rule:
            self.conditional(self.readings)
        if self.subject.propose is not None:
            mixed = next(f for f, _ in groups if f.name.startswith("mixed"))
            self.proposal(self.session.cases(mixed)[0][0])
        self.joint(groups)
        self._exhausted()
        two = self.session.fit(rounds_fixture(self.subject.shape))
        self.rounds(two)
        self.stream(two)
        if all(f.claim != "stream" or f.verdict == "pass" for f in self.session.findings):
            self._batches(groups)
        return True

    def again(self, claim: str, data: dict[str, Any]) -> None:
        """Repeat one claim on the case or the fixture of an earlier failure."""
        if "fixture" in data:
            fixture = Fixture.from_json(data)
            if claim == "joint":
                self.joint([(fixture, self.read(fixture))])
            elif claim == "rounds":
                self.rounds(fixture)
            else:
                self.stream(fixture)
            return
        case = Case.from_json(data)
        if claim == "proposal":
            self.proposal(case)
            return
        self.readings = [Reading(case, Fraction(0), self.law(case))]
        self.support(self.readings)
        if self.rule:
            self.conditional(self.readings)

    def measure(self, program: Program, budget: int | None = None) -> Measured:
        """Measure a program within the budget of a claim."""
        got = measure(program, budget or self.session.profile.calls)
        self.session.report.calls += got.calls
        self.session.report.cells += len(got.cells)
        self.session.escape(got.escapes)
        return got

    def law(self, case: Case) -> Measured:
        """Measure one round on a case."""

        def program(tape: Tape, seed: int) -> Outcome:
            return self.subject.sample(case, 1, seed)[0]

        got = self.measure(program, max(1, self.left))
        self.left -= got.calls
        return got

    def read(self, fixture: Fixture) -> list[Reading]:
        """Measure every draft of a fixture."""
        found: list[Reading] = []
        for case, weight in self.session.cases(fixture):
            found.append(Reading(case, weight, self.law(case)))
            if self.session.escapes:
                break
        return found

    def _groups(self) -> Groups:
        """Measure everything that claims about one round look at, smallest first."""
        session = self.session
        groups: Groups = []
        todo = [session.fit(f) for f in fixtures(self.subject.shape, session.profile.thorough)]
        for number, fixture in enumerate(todo, start=1):
            session.say(f"{fixture.name}, {number}/{len(todo)}")
            groups.append((fixture, self.read(fixture)))
            if session.escapes:
                return groups
        self.readings = [reading for _, group in groups for reading in group]
        if not session.one_hot_target:
            session.say("near-ties and tiny masses")
            for make in (near_ties, tiny_masses):
                for case in make(self.rule, self.subject.shape):
                    self.readings.append(Reading(case, Fraction(0), self.law(case)))
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

    def _audit(self, groups: Groups) -> bool:
        """Whether real draws fall where the cells say."""
        session = self.session
        total = Audit()
        for fixture, group in groups[-2:]:
            session.say(f"audit of {fixture.name}")
            rows = max(16, session.profile.audit_rows // len(group))
            single = max(4, session.profile.audit_calls // len(group))
            for number, reading in enumerate(group):
                seed = seed_of(session.seed, number)
                total.add(audit(reading.measured, self._sampler(reading.case), rows, single, seed))
        finding = Finding("audit", self.rule, MEASURED, "pass", bound=total.bound())
        finding.message = f"{total.rows:,} real draws, none outside its cell"
        session.findings.append(finding)
        if total.misses:
            finding.verdict = "inconclusive"
            finding.message = (
                f"{total.misses:,} of {total.rows:,} real draws gave another outcome than their "
                f"cell ({total.example}): something that the tape does not see takes part"
            )
            session.escape([finding.message])
        return not total.misses

    def _batches(self, groups: Groups, rows: int = 256) -> None:
        """Hold calls of many rows to the law that was measured on calls of one."""
        readings = [reading for _, group in groups[-2:] for reading in group]
        alarm = log(len(readings) / ALARM)
        for number, reading in enumerate(readings):
            seed = seed_of(self.session.seed, 1_000 + number)
            if any(isinstance(outcome, Problem) for outcome in reading.got):
                continue  # it takes all rows of a call with it
            counts = Counter(self.subject.sample(reading.case, rows, seed))
            seen = weigh(reading.got, counts, 0.05)
            if seen.impossible is None and seen.log_e < alarm:
                continue
            finding = next(f for f in self.session.findings if f.claim == "audit")
            finding.verdict, finding.severity, finding.tv = "fail", "law", seen.gap
            finding.message = f"calls of {rows} rows follow another law than calls of one row"
            if isinstance(seen.impossible, Problem):
                finding.severity = "crash"
                finding.message = f"in calls of {rows} rows: {seen.impossible}"
            finding.case = reading.case.to_json()
            finding.expected = shown(reading.got)
            finding.measured = shown({out: Fraction(c, rows) for out, c in counts.items()})
            return

    def _sampler(self, case: Case) -> Callable[[int, int], list[Outcome]]:
        return lambda n, seed: self.subject.sample(case, n, seed)

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
                shape = self.subject.shape
                finding.nearest_fault = diagnose.nearest_edge(deviation, shape, self.rule)
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
        for claim, (test, text) in tests.items():
            found = test(readings)
            bad = next((d for d in found if d.fails), None)
            if bad is None:
                worst = max((float(d.tv) for d in found), default=0.0)
                self._pass(claim, worst, f"{len(found)} cases")
            else:
                self.session.findings.append(self._failure(claim, bad, "law", text))

    def joint(self, groups: Groups) -> None:
        """Over all drafts, continued by the target: the target's joint law."""
        worst = 0.0
        for fixture, group in groups:
            found = checks.joint(fixture, group, self.session.dtype)
            if found.fails:
                self.readings = self.readings or group
                self.session.findings.append(self._texts("joint", found))
                return
            worst = max(worst, float(found.tv))
        calls = sum(reading.measured.calls for _, group in groups for reading in group)
        tokens = max(fixture.gamma + 1 for fixture, _ in groups)
        self._pass("joint", worst, f"{len(groups)} pairs of models, up to {tokens} tokens", calls)

    def rounds(self, fixture: Fixture) -> None:
        """Two rounds in one program, so that whatever is carried over shows in the law."""
        self.session.say("two rounds")
        length, dtype = fixture.gamma + 2, self.session.dtype

        def program(tape: Tape, seed: int) -> Outcome:
            text: tuple[int, ...] = ()
            for number in range(2):
                if len(text) >= length:
                    break
                root = self.subject.drafter(
                    lambda context: fixture.target(context, dtype),
                    lambda context: fixture.draft(context, dtype),
                    fixture.shape,
                    tape,
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
        found = checks.fixture_texts(fixture, got.law, length, dtype)
        if found.fails:
            self.session.findings.append(self._texts("rounds", found, got.calls))
        else:
            self._pass("rounds", float(found.tv), f"two rounds, {length} tokens", got.calls)

    def proposal(self, case: Case) -> None:
        """The q-contract, and then the joint law on the subject's own drafts."""
        self.session.say("its own drafts")

        def propose(tape: Tape, seed: int) -> Any:
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
        found = checks.contract(laws)
        limit = checks.band(case.vocab, case.gamma, self.session.dtype)
        if found.tv <= limit:
            self._own_drafts(case, float(found.tv), got.calls)
            return
        tokens: dict[tuple[int, ...], Fraction] = {}
        for (drafted, _), mass in laws.items():
            tokens[drafted] = tokens.get(drafted, Fraction(0)) + mass
        gap = float(distance(found.got, found.wanted))
        finding = Finding("proposal", self.rule, MEASURED, "fail", "contract", gap)
        finding.message = "its drafts do not follow the q that it declares"
        finding.case, finding.calls = case.to_json(), got.calls
        finding.expected, finding.measured = shown(found.wanted), shown(found.got)
        finding.nearest_fault = diagnose.nearest_drafter(tokens, case, limit)
        self.session.findings.append(finding)

    def _own_drafts(self, case: Case, gap: float, calls: int) -> None:
        """Verify what the subject itself drafted: draws of both must not be mixed up."""

        def program(tape: Tape, seed: int) -> Outcome:
            got = self.subject.proposals(case, 1, seed)
            if isinstance(got, Problem):
                return got
            ((tokens, q),) = got
            count = len(tokens)
            rows = (*q[:count], case.q[count])
            drafted = Case(case.p[: count + 1], rows, tokens, case.parents[:count], self.rule)
            return self.subject.sample(drafted, 1, seed_of(seed, 1))[0]

        got = self.measure(program)
        if not got.exact:
            self._open("proposal", got)
            return
        found = checks.case_texts(case, got.law)
        if found.fails:
            finding = self._texts("proposal", found, calls + got.calls)
            finding.message = "verified on its own drafts, the joint law is not the target's"
            self.session.findings.append(finding)
        else:
            text = f"the q-contract, and {case.gamma + 1} tokens on its own drafts"
            self._pass("proposal", max(gap, float(found.tv)), text, calls + got.calls)

    def stream(self, fixture: Fixture) -> None:
        """No generator state is used twice, and two rows of a call are independent."""
        session = self.session
        session.say("streams")
        case, _ = max(session.cases(fixture), key=lambda pair: pair[1])
        text = stream.repeated_states(self.subject, case, session.seed)
        tv, calls = 0.0, 0
        if not text:
            single = self.law(case)

            def both(tape: Tape, seed: int) -> Any:
                return tuple(self.subject.sample(case, 2, seed))

            pair = self.measure(both)
            calls = single.calls + pair.calls
            if not pair.exact:
                self._open("stream", pair)
                return
            # An exception takes all rows of a call with it; that is the business of `support`.
            one = {a: x for a, x in single.law.items() if not isinstance(a, Problem)}
            pairs: dict[Any, Fraction] = dict(pair.law)
            two = {ab: x for ab, x in pairs.items() if not isinstance(ab[0], Problem)}
            product = {(a, b): x * y for a, x in one.items() for b, y in one.items()}
            tv = float(distance(two, product))
            if tv > 2 * checks.band_of(case):
                text = "two rows of one call are not independent"
            else:
                text = stream.shared_draws(self.subject, case)
        if text:
            data = fixture.to_json()
            session.findings.append(
                Finding("stream", self.rule, MEASURED, "fail", "stream", tv, text, data)
            )
        else:
            self._pass("stream", tv, "states at every draw, and the rows of a call", calls)

    # Findings

    @cached_property
    def _named(self) -> dict[str, Any] | None:
        """The known faults with the measured law."""
        self.session.say("looking for a known fault")
        return diagnose.nearest(self.readings, self.subject.shape, self.rule)

    def _pass(self, claim: str, tv: float, text: str, calls: int = 0) -> None:
        finding = Finding(claim, self.rule, MEASURED, "pass", "", tv, text, calls=calls)
        if tv > checks.band(8, 8, "float32"):
            # Half precision explains so much that a wrong formula could hide in it.
            finding.verdict = "inconclusive"
            finding.message = f"no more than rounding in {self.session.dtype}, which hides faults"
        elif tv:
            finding.severity = "numerics"
        self.session.findings.append(finding)

    def _open(self, claim: str, got: Measured) -> None:
        reason = got.escapes[0] if got.escapes else f"more than {got.calls} calls are needed"
        self.session.findings.append(
            Finding(claim, self.rule, MEASURED, "inconclusive", message=reason, calls=got.calls)
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
            d.reading.measured.where(set(d.outcomes)),
            calls=d.reading.measured.calls,
        )

    def _texts(self, claim: str, found: JointDeviation, calls: int = 0) -> Finding:
        at = found.first_position
        seen = f"first seen at token {at}" if at else "seen in the joint law only"
        return Finding(
            claim,
            self.rule,
            MEASURED,
            "fail",
            "law",
            float(found.tv),
            f"on {found.name}, the law is not the target's, {seen}",
            found.data,
            shown(found.wanted),
            shown(found.got),
            self._named if self.readings else None,
            calls=calls,
        )
