"""The depth for black boxes: count what comes out, and weigh the counts against the exact law.

Drafts are drawn by the gate with their exact probabilities, the subject verifies them, and pairs of
draft and outcome are independent draws from an exact law. Each claim looks at a function of them.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import log, prod
from typing import Any

import numpy as np

from specref.choice import law
from specref.decode import target_law
from specref.dist import as_fraction
from specref.draft import Node
from specref.faults import FAULTS
from specref.gate.cases import Case, Fixture, exact, sampled_fixtures
from specref.gate.evidence import Evidence, rows_needed, weigh
from specref.gate.report import SAMPLES, Finding, shown
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import MOST_ROWS, Outcome, Problem
from specref.rules import RULES, Verify

FIRST_LOOK = 1 << 10
"""Rows at the first look; each look doubles them."""


@dataclass(frozen=True)
class Drawn:
    """One draft of a fixture: its case, its probability, its root with exact laws."""

    case: Case
    weight: Fraction
    root: Node

    def law(self, verify: Verify) -> dict[tuple[int, ...], Fraction]:
        """Return the exact law of a rule on this draft."""
        return {out: as_fraction(m) for out, m in law(lambda c: verify(self.root, c)).items()}

    @property
    def q_positive(self) -> bool:
        """Whether q is positive at every drafted token."""
        rows = [exact(row, self.case.dtype) for row in self.case.q]
        drawn = zip(self.case.tokens, self.case.parents, strict=True)
        return all(rows[parent][x] > 0 for x, parent in drawn)


def judge(session: Session) -> list[Finding]:
    """Return the findings that samples give, one for each claim that they can settle."""
    todo = [session.fit(fixture) for fixture in sampled_fixtures(session.subject.shape)]
    by_claim: dict[str, list[Finding]] = defaultdict(list)
    for number, fixture in enumerate(todo):
        session.say(f"samples of {fixture.name}")
        count = _Count(session, fixture, seed_of(session.seed, number), len(todo))
        count.run()
        for finding in count.findings():
            by_claim[finding.claim].append(finding)
    if session.subject.propose is not None:
        session.say("samples of its own drafts")
        by_claim["proposal"].append(_proposal(session, todo[0]))
    findings = [_worst(found) for found in by_claim.values()]
    session.say("streams")
    faithful = all(finding.verdict == "pass" for finding in findings)
    return [*findings, _stream(session, todo[0], faithful)]


def _worst(found: list[Finding]) -> Finding:
    """Return the failure if there is one, else the weakest pass."""
    rank = {"fail": 0, "inconclusive": 1, "pass": 2}
    worst = min(found, key=lambda f: (rank[f.verdict], -(f.tv or 0)))
    worst.calls = sum(f.calls for f in found)
    return worst


def drawn(session: Session, fixture: Fixture) -> list[Drawn]:
    """Return every draft of a fixture with its exact laws."""
    found = []
    for case, weight in session.cases(fixture):
        case.handed.add(session.dtype)
        found.append(Drawn(case, weight, case.root()))
    return found


class _Count:
    """Rows of one fixture, counted for every claim at once."""

    def __init__(self, session: Session, fixture: Fixture, seed: int, fixtures: int) -> None:
        self.session, self.fixture, self.seed = session, fixture, seed
        self.tv = session.profile.tv
        self.drafts = drawn(session, fixture)
        self.rng = np.random.default_rng(seed)
        claims = ["support", "joint"]
        entry = RULES[session.rule] if session.rule else None
        if entry and (not entry.drafts_from_q or all(d.q_positive for d in self.drafts)):
            claims[1:1] = ["acceptance", "residual", "bonus"]
        self.views = [_View(claim, self) for claim in claims]
        self.checks = len(claims) * fixtures
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
            named = self._resembles()
            for finding in found:
                if finding.verdict == "fail":
                    finding.nearest_fault = named
        return found

    def _resembles(self) -> dict[str, Any] | None:
        """Return the fault under which the counts are the likeliest."""
        best, score = None, -float("inf")
        for fault in FAULTS.values():
            if fault.rule.shape != self.session.subject.shape or fault.verify is None:
                continue
            laws = [draft.law(fault.verify) for draft in self.drafts]
            likelihood = 0.0
            for (index, outcome), count in self.seen.items():
                mass = laws[index].get(outcome, 0) if isinstance(outcome, tuple) else 0
                likelihood += count * (log(mass) if mass else -100.0)
            if likelihood > score:
                best, score = fault, likelihood
        if best is None:
            return None
        return {
            "matches": [],
            "resembles": best.name,
            "computed": best.computed,
            "should": best.should,
            "links": list(best.links),
        }


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
            length = self.count.fixture.gamma + 1
            return {text: as_fraction(m) for text, m in target_law(self.target, length).items()}
        out: defaultdict[Any, Fraction] = defaultdict(Fraction)
        rule = self.count.session.rule
        assert rule is not None
        for index, draft in enumerate(self.count.drafts):
            for outcome, mass in draft.law(RULES[rule].verify).items():
                out[self.see(index, outcome)] += mass * draft.weight
        return dict(out)

    def see(self, index: int, outcome: Outcome) -> Hashable:
        """Return the class of an outcome."""
        if isinstance(outcome, Problem):
            return outcome
        if self.claim == "joint":
            return self._continued(outcome)
        node: Node | None = self.count.drafts[index].root
        forbidden = False
        for at, x in enumerate(outcome):
            forbidden |= node is not None and node.p[x] == 0
            if node is not None and at < len(outcome) - 1:
                node = next((child for token, child in node.children if token == x), None)
        if self.claim == "support":
            return "a forbidden token" if forbidden else "allowed"
        if self.claim == "acceptance":
            return (index, outcome[:-1])
        leaf = node is not None and not node.children
        if (self.claim == "bonus") == leaf:
            return (outcome[-2:-1], outcome[-1], len(outcome))
        return "elsewhere"

    def _continued(self, outcome: tuple[int, ...]) -> tuple[int, ...]:
        length = self.count.fixture.gamma + 1
        while len(outcome) < length:
            weights = np.array([float(w) for w in self.target(outcome)])
            x = self.count.rng.choice(len(weights), p=weights / weights.sum())
            outcome = (*outcome, int(x))
        return outcome[:length]

    def evidence(self) -> Evidence:
        return weigh(self.expected, self.counts, self.count.tv)

    def verdict(self) -> str:
        return self.evidence().verdict(self.count.tv, self.count.checks)

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
            odds = seen.log_e / log(10)
            finding.message = (
                f"odds against a faithful sampler: 10^{odds:.0f} to 1, after {seen.rows:,} rows"
            )
        finding.case = self.count.fixture.to_json()
        finding.expected = shown(self.expected)
        finding.measured = shown({o: Fraction(c, seen.rows) for o, c in self.counts.items()})


def _proposal(session: Session, fixture: Fixture) -> Finding:
    """Count the subject's own drafts against the q that it declares with them."""
    case, _ = session.cases(fixture)[0]
    finding = Finding("proposal", session.rule, SAMPLES, "inconclusive")
    rows = rows_needed(case.vocab**case.gamma, session.profile.tv)
    got: list[Any] = []
    for start in range(0, rows, MOST_ROWS):
        n = min(MOST_ROWS, rows - start)
        part = session.subject.proposals(case, n, seed_of(seed_of(session.seed, 7), start))
        if isinstance(part, Problem):
            finding.verdict, finding.severity, finding.message = "fail", "crash", str(part)
            return finding
        got += part
    declared = {q for _, q in got}
    if len(declared) > 1 or any(len(tokens) < case.gamma for tokens, _ in got):
        finding.message = "samples settle this for a q and a draft length that do not vary"
        return finding
    q = [exact(row, "float64") for row in declared.pop()]
    wanted = {
        tokens: prod(
            (as_fraction(row[x]) for row, x in zip(q, tokens, strict=True)), start=Fraction(1)
        )
        for tokens in np.ndindex(*(case.vocab,) * case.gamma)
    }
    counts = Counter(tokens for tokens, _ in got)
    seen = weigh(wanted, counts, session.profile.tv)
    finding.verdict, finding.tv = seen.verdict(session.profile.tv, 1), seen.bound
    finding.calls = rows
    finding.message = f"certified by {rows:,} drafts"
    if finding.verdict == "fail":
        finding.severity, finding.tv = "contract", seen.gap
        finding.message = "its drafts do not follow the q that it declares"
        finding.case = case.to_json()
        finding.expected = shown(wanted)
        finding.measured = shown({tokens: Fraction(c, rows) for tokens, c in counts.items()})
    return finding


def _stream(session: Session, fixture: Fixture, faithful: bool) -> Finding:
    """Whole calls that repeat each other; neighbouring rows that do, if the law is right."""
    draft = max(drawn(session, fixture), key=lambda d: d.weight)
    rows = 64

    def call(number: int) -> list[Outcome]:
        return session.subject.sample(draft.case, rows, seed_of(session.seed, 100 + number))

    calls = [call(number) for number in range(4)]
    finding = Finding("stream", session.rule, SAMPLES, "pass", calls=len(calls) * rows)
    if all(isinstance(outcome, Problem) for outcomes in calls for outcome in outcomes):
        finding.verdict, finding.message = "not run", "the calls themselves fail"
        return finding
    if session.rule and faithful:
        one = draft.law(RULES[session.rule].verify)
        collision = sum(float(mass) ** 2 for mass in one.values())
    else:
        pooled = Counter(outcome for outcomes in calls for outcome in outcomes)
        collision = sum((count / (len(calls) * rows)) ** 2 for count in pooled.values())
    if collision == 1 and session.one_hot_target:
        finding.message = "the rule draws nothing"
    elif any(later == calls[0] for later in calls[1:]):
        finding.verdict, finding.severity = "fail", "stream"
        finding.message = (
            f"calls with different seeds gave the same {rows} rows; independent calls do so with "
            f"probability {collision**rows:.0e}"
        )
    elif all(len(set(outcomes)) == 1 for outcomes in calls):
        finding.verdict, finding.severity = "fail", "stream"
        finding.message = f"all {rows} rows of a call are equal, in every call"
    elif session.rule and faithful:
        pairs: Counter[Any] = Counter()
        for number in range(64):
            outcomes = call(number)
            pairs.update(zip(outcomes[::2], outcomes[1::2], strict=True))
        product = {(a, b): x * y for a, x in one.items() for b, y in one.items()}
        finding.calls = 64 * rows
        finding.message = f"{pairs.total():,} pairs of neighbouring rows"
        if weigh(product, pairs, 0.05).verdict(1, 1) == "fail":
            finding.verdict, finding.severity = "fail", "stream"
            finding.message = "neighbouring rows of a call are not independent"
    else:
        finding.message = "calls differ, and so do the rows of a call"
    if finding.verdict == "fail":
        finding.case = fixture.to_json()
    return finding
