"""The depth for black boxes: count what comes out, and weigh the counts against the exact law.

Drafts are drawn by the gate with their exact probabilities, the subject verifies them, and pairs of
draft and outcome are independent draws from an exact law. Each claim looks at a function of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from math import log, prod
from typing import Any

import numpy as np

from specref.decode import complete, target_law
from specref.dist import Law, as_fraction
from specref.gate import diagnose
from specref.gate.cases import Case, Fixture, exact, sampled_fixtures
from specref.gate.checks import Drafted, mixed
from specref.gate.chi_square import ChiSquare, chi_square, holm, remark
from specref.gate.evidence import ALARM, Evidence, rows_needed, weigh
from specref.gate.grid import parameter_fixtures
from specref.gate.report import SAMPLES, Finding, shown
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import MOST_ROWS, Outcome, Problem, Proposal

CONDITIONAL = ["acceptance", "residual", "bonus"]

FIRST_LOOK = 1 << 10
"""Rows at the first look; each look doubles them."""


def judge(session: Session) -> list[Finding]:
    """Return the findings that samples give, one for each claim that they can settle."""
    shape, width = session.subject.shape, session.width
    asked = parameter_fixtures(shape, False, width)
    laws = sampled_fixtures(shape, width) + asked[0 if session.profile.thorough else -1 :]
    todo = [session.fit(fixture) for fixture in laws]
    session.say("streams")
    fresh = stream(session, todo[0])
    if fresh.verdict == "fail":
        return [fresh, *_not_run(session)]  # counts of draws that are not fresh say nothing
    by_claim: dict[str, list[Finding]] = defaultdict(list)
    tested: Tested = defaultdict(list)
    for number, fixture in enumerate(todo):
        session.say(f"samples of {fixture.name}")
        count = _Count(session, fixture, seed_of(session.seed, number))
        count.run()
        for finding in count.findings():
            by_claim[finding.claim].append(finding)
        for view in count.views:
            tested[view.claim].append(_tested(session, view.expected, view.counts))
    if session.subject.propose is not None:
        session.say("samples of its own drafts")
        by_claim["proposal"].append(_proposal(session, todo[0], tested))
    worst = [_worst(found) for found in by_claim.values()]
    _add_chi_square(session, worst, tested)
    return [*worst, fresh]


def around(session: Session, fixture: Fixture) -> list[Finding]:
    """Return what samples say where `decide` is measured: of the draws that `sample` makes."""
    session.say("streams")
    found = [stream(session, fixture)]
    if session.subject.propose is not None:
        session.say("samples of its own drafts")
        tested: Tested = defaultdict(list)
        found.append(_proposal(session, fixture, tested))
        _add_chi_square(session, found, tested)
    return found


Tested = defaultdict[str, list[ChiSquare]]
"""Chi-square tests, by claim."""


def _tested(session: Session, wanted: Mapping[Any, Any], counts: Mapping[Any, int]) -> ChiSquare:
    return chi_square(wanted, counts, session.profile.tv, tests=session.tests)


def _add_chi_square(session: Session, findings: list[Finding], tested: Tested) -> None:
    """Say in each finding what chi-square makes of the counts of its claim; it decides nothing."""
    p_values = [one.p_value for finding in findings for one in tested[finding.claim]]
    adjusted = iter(holm(p_values, session.tests))
    for finding in findings:
        found = tested[finding.claim]
        text = remark(found, [next(adjusted) for _ in found], session.tests)
        finding.message = "; ".join(filter(None, (finding.message, text)))


def _not_run(session: Session) -> list[Finding]:
    claims = ["support", *(CONDITIONAL if session.rule else ()), "joint"]
    claims += ["proposal"] * (session.subject.propose is not None)
    text = "its draws are not fresh, so counts of them say nothing"
    return [Finding(claim, session.rule, SAMPLES, "not run", message=text) for claim in claims]


def _worst(found: list[Finding]) -> Finding:
    """Return the failure if there is one, else the weakest pass."""
    rank = {"fail": 0, "inconclusive": 1, "pass": 2}
    worst = min(found, key=lambda f: (rank[f.verdict], -(f.tv or 0)))
    worst.calls = sum(f.calls for f in found)
    return worst


def drawn(session: Session, fixture: Fixture) -> list[Drafted]:
    """Return every draft of a fixture."""
    found = []
    for case, weight in session.cases(fixture):
        case.handed.add(session.dtype)
        found.append(Drafted(case, weight, drafter=session.subject.drafter))
    return found


class _Count:
    """Rows of one fixture, counted for every claim at once."""

    def __init__(self, session: Session, fixture: Fixture, seed: int) -> None:
        self.session, self.fixture, self.seed = session, fixture, seed
        self.tv = session.profile.tv
        self.drafts = drawn(session, fixture)
        self.rng = np.random.default_rng(seed)
        claims = ["support", "joint"]
        if all(draft.defined for draft in self.drafts):
            claims[1:1] = CONDITIONAL
        elif session.lossy:
            claims.remove("joint")  # its law is not known on all drafts
        self.views = [_View(claim, self) for claim in claims]
        self.seen: Counter[tuple[int, Outcome]] = Counter()
        self.rows = 0

    def run(self) -> None:
        """Draw until every certificate is reached, or an alarm goes off."""
        need = max(rows_needed(len(view.expected), self.tv) for view in self.views)
        look = 0
        while self.rows < need:
            rows = min(max(FIRST_LOOK, self.rows), need - self.rows)
            for index, outcome in self._draw(rows, seed_of(self.seed, look)):
                self.seen[index, outcome] += 1
                for view in self.views:
                    view.counts[view.see(index, outcome)] += 1
            self.rows += rows
            look += 1
            # The alarm may be looked at any time; a broken sampler needs no more rows.
            if any(view.verdict() == "fail" for view in self.views):
                return

    def _draw(self, rows: int, seed: int) -> Iterator[tuple[int, Outcome]]:
        """Draw drafts by their probabilities and have each kind verified in one call."""
        weights = np.array([float(d.weight) for d in self.drafts])
        counts = self.rng.multinomial(rows, weights / weights.sum())
        for index, (draft, count) in enumerate(zip(self.drafts, counts, strict=True)):
            for start in range(0, count, MOST_ROWS):
                n = min(MOST_ROWS, int(count) - start)
                rows_of = self.session.subject.sample(
                    draft.case, n, seed_of(seed_of(seed, index), start)
                )
                for outcome in rows_of:
                    yield index, outcome

    def findings(self) -> list[Finding]:
        """Return what the counts say of each claim."""
        found = [view.finding() for view in self.views]
        if any(f.verdict == "fail" for f in found):
            roots = [draft.root for draft in self.drafts]
            named = diagnose.likeliest(roots, self.seen, self.session.subject)
            for finding in found:
                if finding.verdict == "fail" and finding.severity == "law":
                    finding.nearest_fault = named
        return found


def _listed(tokens: tuple[int, ...]) -> str:
    return " ".join(map(str, tokens)) or "none"


class _View:
    """What one claim sees of (draft, outcome): a class, whose law is known exactly."""

    def __init__(self, claim: str, count: _Count) -> None:
        self.claim, self.count = claim, count
        self.target = partial(count.fixture.target, dtype=count.session.dtype)
        self.counts: Counter[Any] = Counter()
        self.expected = self._law()

    def _law(self) -> dict[Any, Fraction]:
        if self.claim == "support":
            return {"allowed": Fraction(1)}
        if self.claim == "joint":
            start: dict[tuple[int, ...], Any] = {(): 1}
            if self.count.session.lossy:
                start = mixed((draft.wanted, draft.weight) for draft in self.count.drafts)
            texts = complete(start, self.target, self.count.fixture.gamma + 1)
            return {text: as_fraction(mass) for text, mass in texts.items()}
        out: defaultdict[Any, Fraction] = defaultdict(Fraction)
        for index, draft in enumerate(self.count.drafts):
            for outcome, mass in draft.wanted.items():
                out[self.see(index, outcome)] += mass * draft.weight
        return dict(out)

    def see(self, index: int, outcome: Outcome) -> Hashable:
        """Return the class of an outcome: what this claim is about, in words that reports show.

        Of the draft 3 0, "3 0: keeps 3"; then "2nd after 3: 1", a correction or a bonus.
        """
        if isinstance(outcome, Problem):
            return outcome
        if self.claim == "joint":
            return continued(outcome, self.target, self.count.fixture.gamma + 1, self.count.rng)
        draft = self.count.drafts[index]
        if self.claim == "support":
            return draft.impossible(outcome) or "allowed"
        if self.claim == "acceptance":
            return f"{_listed(draft.case.tokens)}: keeps {_listed(outcome[:-1])}"
        node = draft.path(outcome[:-1])
        leaf = node is not None and not node.children
        if (self.claim == "bonus") != leaf:
            return "no bonus" if self.claim == "bonus" else "no correction"
        if len(outcome) == 1:
            return f"1st token: {outcome[0]}"
        place = {2: "2nd", 3: "3rd"}.get(len(outcome), f"{len(outcome)}th")
        return f"{place} after {outcome[-2]}: {outcome[-1]}"

    def evidence(self) -> Evidence:
        return weigh(self.expected, self.counts, self.count.tv)

    def verdict(self) -> str:
        return self.evidence().verdict(self.count.tv, self.count.session.tests)

    def finding(self) -> Finding:
        """Return what the counts say."""
        seen, verdict, rows = self.evidence(), self.verdict(), self.count.rows
        finding = Finding(self.claim, self.count.session.rule, SAMPLES, verdict, calls=rows)
        if verdict == "fail":
            self._failed(finding, seen)
        elif self.claim == "support":
            finding.verdict = "pass"
            finding.message = f"nothing impossible among {rows:,} rows"
        else:
            finding.tv = seen.bound
            certified = f"certified by {rows:,} rows"
            wanted = f"; the profile wants {self.count.tv}"
            finding.message = certified + (wanted if verdict == "inconclusive" else "")
        return finding

    def _failed(self, finding: Finding, seen: Evidence) -> None:
        finding.severity, finding.tv = "law", seen.gap
        if isinstance(seen.impossible, Problem):
            finding.severity, finding.message = "crash", str(seen.impossible)
        elif seen.impossible is not None:
            finding.message = f"impossible, and seen: {seen.impossible}"
        else:
            finding.message = (
                f"{seen.rows:,} rows have 10^{seen.log_e / log(10):.0f} times the likelihood under "
                "other laws"
            )
        finding.case = self.count.fixture.to_json()
        finding.expected = shown(self.expected)
        finding.measured = shown({o: Fraction(c, seen.rows) for o, c in self.counts.items()})


def _proposal(session: Session, fixture: Fixture, tested: Tested) -> Finding:
    """Count the subject's own drafts against their q, and what it makes of them."""
    case = session.levels(fixture)
    finding = Finding("proposal", session.rule, SAMPLES, "inconclusive")
    rows = rows_needed(case.vocab ** (case.gamma + 1), session.profile.tv)
    drafts: list[Proposal] = []
    for start in range(0, rows, MOST_ROWS):
        n = min(MOST_ROWS, rows - start)
        part = session.subject.proposals(case, n, seed_of(seed_of(session.seed, 7), start))
        if isinstance(part, Problem):
            finding.verdict, finding.severity, finding.message = "fail", "crash", str(part)
            finding.case = case.to_json()
            return finding
        drafts += part
    finding.calls = rows
    known = _declared(case, drafts)
    if known is not None:
        counts = Counter(draft.tokens for draft in drafts)
        _weighed(session, finding, case, known, counts, "contract")
        tested["proposal"].append(_tested(session, known, counts))
        finding.message = finding.message or f"certified by {rows:,} drafts"
        if finding.verdict == "fail":
            finding.message = "its drafts do not follow the q that it declares"
            return finding
    if session.lossy:  # what its own drafts should then give depends on how it drafts
        finding.message += "; a lossy rule is held to its law on given drafts only"
        return finding
    rows_of_p = [exact(row, case.dtype) for row in case.p]
    length = case.gamma + 1

    def target(text: tuple[int, ...]) -> Law:
        return rows_of_p[len(text)]

    wanted = target_law(target, length)
    rng = np.random.default_rng(session.seed)
    texts: Counter[Any] = Counter()
    for number, (draft, count) in enumerate(Counter(drafts).items()):
        for start in range(0, count, MOST_ROWS):
            seed = seed_of(seed_of(session.seed, 1_000 + number), start)
            own = case.with_draft(draft.tokens, draft.parents, draft.q)
            for out in session.subject.sample(own, min(MOST_ROWS, count - start), seed):
                texts[out if isinstance(out, Problem) else continued(out, target, length, rng)] += 1
    _weighed(session, finding, case, wanted, texts, "law")
    tested["proposal"].append(_tested(session, wanted, texts))
    finding.message = f"certified by {rows:,} drafts of its own, verified"
    if finding.verdict == "fail":
        finding.message = "verified on its own drafts, the joint law is not the target's"
    return finding


def _declared(case: Case, drafts: list[Proposal]) -> dict[tuple[int, ...], Fraction] | None:
    """Return the law that the declared q means, of chains of one length with one q; else None."""
    if not case.chain or any(len(draft.tokens) < case.gamma for draft in drafts):
        return None
    declared = {draft.q for draft in drafts}
    if len(declared) > 1:
        return None
    q = [exact(row, "float64") for row in declared.pop()]
    return {
        tokens: prod(
            (as_fraction(row[x]) for row, x in zip(q, tokens, strict=False)), start=Fraction(1)
        )
        for tokens in np.ndindex(*(case.vocab,) * case.gamma)
    }


def _weighed(
    session: Session,
    finding: Finding,
    case: Case,
    wanted: Mapping[Any, Any],
    counts: Counter[Any],
    severity: str,
) -> None:
    """Set the verdict that counts give, and what it rests on."""
    seen = weigh(wanted, counts, session.profile.tv)
    finding.verdict = seen.verdict(session.profile.tv, session.tests)
    finding.tv = max(finding.tv or 0.0, seen.bound)
    if finding.verdict == "fail":
        finding.severity, finding.tv = severity, seen.gap
        finding.case = case.to_json()
        finding.expected = shown(wanted)
        total = counts.total()
        finding.measured = shown({o: Fraction(c, total) for o, c in counts.items()})


def continued(
    text: tuple[int, ...], target: Callable[[tuple[int, ...]], Law], length: int, rng: Any
) -> tuple[int, ...]:
    """Return a text that the target goes on with, up to `length` tokens."""
    while len(text) < length:
        weights = np.array([float(w) for w in target(text)])
        text = (*text, int(rng.choice(len(weights), p=weights / weights.sum())))
    return text


ROWS, CALLS = 64, 128
"""Rows of a call and number of calls in which repetitions are looked for."""


def stream(session: Session, fixture: Fixture) -> Finding:
    """Look for calls that repeat each other, and for rows of a call that go together.

    Of independent rows, two of one call are equal as often as two of different calls. The
    differences are independent, have mean 0 and lie in [-1, 1]: Hoeffding's inequality bounds their
    sum. This holds whatever the law is.
    """
    draft = max(drawn(session, fixture), key=lambda d: d.weight)
    calls = [
        session.subject.sample(draft.case, ROWS, seed_of(session.seed, 100 + number))
        for number in range(CALLS)
    ]
    outcomes = Counter(outcome for call in calls for outcome in call)
    finding = Finding("stream", session.rule, SAMPLES, "pass", calls=CALLS * ROWS)
    finding.message = f"{CALLS} calls that differ; their rows do not go together"
    if all(isinstance(outcome, Problem) for outcome in outcomes):
        finding.verdict, finding.message = "not run", "the calls themselves fail"
        return finding
    if len(outcomes) == 1:
        finding.message = "it always gives the same: nothing that could be repeated"
        return finding
    text = ""
    # Independent calls are equal with at most this probability.
    alike = max(outcomes.values()) / outcomes.total()
    if CALLS**2 * alike**ROWS < ALARM and len({tuple(call) for call in calls}) < CALLS:
        text = f"calls with different seeds gave the same {ROWS} rows"
    text = text or _together(calls, log(2 * LAGS * session.tests / ALARM))
    if text:
        finding.verdict, finding.severity, finding.message = "fail", "stream", text
        finding.case = fixture.to_json()
    return finding


LAGS = 6
"""Rows are compared at the distances 1, 2, 4, ... 32."""


def _together(calls: list[list[Outcome]], alarm: float) -> str:
    """Return which rows of a call are equal more often, or less, than independent ones."""
    for lag in (1 << power for power in range(LAGS)):
        total = number = 0
        for call, other in zip(calls[::2], calls[1::2], strict=True):
            for one, two in (call, other), (other, call):
                # Each row is used once: two of a call for one side, two of two calls for the other.
                at = [r for r in range(ROWS - lag) if r // lag % 2 == 0]
                for within, across in zip(at[::2], at[1::2], strict=False):
                    total += (one[within] == one[within + lag]) - (one[across] == two[across + lag])
                    number += 1
        if total**2 > 2 * number * alarm:
            return f"rows of a call that are {lag} apart are not independent"
    return ""
