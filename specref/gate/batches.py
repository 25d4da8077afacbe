"""Batches: a request gets the law that it gets alone, whatever stands beside it.

A call for n rows may be a batch of several requests: the tensors of a `Mixed` case hold other laws
and other drafts in each row, and a sampler that works on whole tensors cannot tell it from the
tiled ones that it is given elsewhere. What goes wrong here in engines: q rows that are not moved
along when requests are, one length for all, rows of the first request for everyone, and counters
that requests share.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, cast

import numpy as np

from specref.dist import tv
from specref.gate.cases import Case, Fixture, rounds_fixture, sampled_fixtures
from specref.gate.cell import Measured
from specref.gate.checks import Mass, band_of, mixed, rule_law
from specref.gate.comparison import Asked, Check, Result, noted, over, summary, tally, weighed
from specref.gate.errors import UsageError, nearest
from specref.gate.evidence import weigh
from specref.gate.exact import Instrument
from specref.gate.relations import padded_draft, relabelled
from specref.gate.report import MEASURED, Finding
from specref.gate.seeds import seed_of, states_kept
from specref.gate.session import Session
from specref.gate.subject import Outcome, Problem
from specref.rules import RULES

CLAIM = "batch"

MOST_CELLS = 512
"""Cells of the law of a call for several requests, as those of each of them foretell."""

MANY = 192
"""Rows of a large call: as many of each of three requests."""

SIZES = (2, 3, 5, 8, 64, 256)
"""Rows of calls that are counted, in turn."""


class Mixed:
    """Several requests as one case: row i of all that it hands over is that of the case i.

    It offers what subjects are promised of a case, and nothing else of it: a subject that asks for
    more, or for other rows, verifies one request at a time.

    Args:
        cases: one for each row, with drafts of one shape and one vocabulary.

    Attributes:
        single: why the subject is not one that takes batches, or "".
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        known = list(dict.fromkeys(self.cases))
        self._known, self._row = known, np.array([known.index(case) for case in self.cases])
        first = known[0]
        self.rule, self.shape, self.chain = first.rule, first.shape, first.chain
        self.gamma, self.vocab = first.gamma, first.vocab
        self.single = ""

    def arrays(self, n: int = 1) -> tuple[Any, ...]:
        """Return NumPy arrays, as `Case.arrays` does."""
        rows = self._rows(n)
        parts = zip(*(case.arrays(1) for case in self._known), strict=True)
        return tuple(np.concatenate(part)[rows] for part in parts)

    def tensors(self, n: int = 1, dtype: str = "float32", device: str = "cpu") -> tuple[Any, ...]:
        """Return torch tensors, as `Case.tensors` does."""
        return self._stacked([case.tensors(1, dtype, device) for case in self._known], n)

    def logits(self, n: int = 1, dtype: str = "float32", device: str = "cpu") -> tuple[Any, ...]:
        """Return logits and the rest, as `Case.logits` does."""
        return self._stacked([case.logits(1, dtype, device) for case in self._known], n)

    def pointers(self, n: int = 1) -> tuple[Any, Any]:
        """Return (first child, next sibling), as `Case.pointers` does."""
        rows = self._rows(n)
        parts = zip(*(case.pointers(1) for case in self._known), strict=True)
        first, following = (np.concatenate(part)[rows] for part in parts)
        return first, following

    def to_json(self) -> dict[str, Any]:
        """Return the first request as JSON data."""
        return self.cases[0].to_json()

    def __getattr__(self, name: str) -> Any:
        self.__dict__.setdefault("single", "")
        if not name.startswith("__"):
            self.single = self.single or f"it looks at case.{name}, not at the rows it is given"
        raise AttributeError(f"a batch of several requests has no {name}")

    def _stacked(self, given: Sequence[tuple[Any, ...]], n: int) -> tuple[Any, ...]:
        import torch

        rows = self._rows(n)
        parts = zip(*given, strict=True)
        return tuple(torch.cat(part)[torch.from_numpy(rows).to(part[0].device)] for part in parts)

    def _rows(self, n: int) -> Any:
        if n != len(self.cases):
            self.single = self.single or f"it asks for {n} of {len(self.cases)} rows"
        return self._row[np.arange(n) % len(self.cases)]


def judge(
    session: Session, instrument: Instrument | None = None, names: Iterable[str] | None = None
) -> list[Finding]:
    """Return a finding for each way in which requests disturb each other, or one if none does.

    Args:
        session: whose subject is asked.
        instrument: that could follow the subject; None to count.
        names: of what to look at (`LOOKS`), where laws can be measured; None for all.
    """
    asked = Asked(session, instrument)
    with states_kept():
        session.say("batches of several requests")
        reason = _single(session)
        if reason:
            text = f"it verifies one request at a time: {reason}"
            return [Finding(CLAIM, session.rule, "", "not applicable", message=text)]
        made = {name: _Batch(asked, fixture) for name, fixture in _fixtures(session).items()}
        if not asked.fine:
            return _judged(asked, [(COUNTED, made["small"])])
        if not made["wide"].affordable(made["wide"].cases[:2]):
            made["wide"] = made["small"]
        chosen = LOOKS if names is None else names
        return _judged(asked, [(name, made[ON.get(name, "small")]) for name in chosen])


def again(
    session: Session, claim: str, data: Mapping[str, Any], instrument: Instrument | None = None
) -> list[Finding]:
    """Repeat one look on the fixture of an earlier failure.

    Raises:
        UsageError: the data names no such look.
    """
    name = str(data.get("relation"))
    if claim != CLAIM or name not in {**LOOKS, COUNTED: None}:
        raise UsageError(f"batches have no relation {name!r}{nearest(name, (*LOOKS, COUNTED))}")
    asked = Asked(session, instrument)
    with states_kept():
        return _judged(asked, [(name, _Batch(asked, Fixture.from_json(data)))])


def _fixtures(session: Session) -> dict[str, Fixture]:
    """Return the fixtures for pairs of requests, for more of them, and for drafts to be cut."""
    shape, width = session.subject.shape, session.width
    wide = session.fit(sampled_fixtures(shape, width)[0])
    small = session.fit(rounds_fixture(shape, width=width))
    deep = replace(small, shape=2) if shape == "chain" else small
    return {"wide": wide, "small": small, "deep": deep}


def _single(session: Session) -> str:
    """Return why calls of the subject are no batches, or "".

    Of two requests whose texts are sure, and different, a subject that looks at the first row alone
    gives the text of the first twice, in either order.
    """
    shape = session.subject.shape
    cases = []
    for y, row in enumerate(((1.0, 0.0), (0.0, 1.0))):
        case = Case((row, row), (row, row), (y,), (0,), session.rule, shape)
        cases.append(noted(session, case))
    alone = [session.subject.sample(case, 1, session.seed)[0] for case in cases]
    alike = []
    for one, two in ((0, 1), (1, 0)):
        batch = Mixed([cases[one], cases[two]])
        out = session.subject.sample(cast(Case, batch), 2, session.seed)
        if batch.single:
            return batch.single
        alike.append(out == [alone[one]] * 2)
    sure = alone[0] != alone[1] and not any(isinstance(out, Problem) for out in alone)
    return "every row follows the first" if sure and all(alike) else ""


def _judged(asked: Asked, todo: Sequence[tuple[str, "_Batch"]]) -> list[Finding]:
    session = asked.session
    failures: list[Finding] = []
    held: dict[str, list[Result]] = {}
    for name, batch in todo:
        before = asked.calls
        found = LOOKS[name](batch) if asked.fine else None
        if found is None:
            if name != COUNTED:
                continue  # it takes more calls than there are, or what the subject does not offer
            found = _counted(batch)
        found.calls += asked.calls - before
        held[name] = [found]
        if found.verdict == "fail":
            data = {**batch.fixture.to_json(), "relation": name}
            text = f"{name}: {found.label}; on {batch.fixture.name}"
            failures.append(found.finding(CLAIM, session, text, data))
    return failures or [summary(session, CLAIM, "ways to batch requests", held, {})]


class _Batch:
    """Three requests made of one fixture, and the laws of calls for some of them.

    Their laws are those of the fixture with tokens renamed, so no two have a row in common; so are
    their drafts, the likeliest, but for the last request: its draft is accepted as others are not.
    """

    def __init__(self, asked: Asked, fixture: Fixture) -> None:
        self.asked, self.session, self.fixture = asked, asked.session, fixture
        self._joint: dict[tuple[int, ...], Measured | None] = {}

    @cached_property
    def fixtures(self) -> list[Fixture]:
        """The fixture, its tokens renamed once, and twice."""
        once = relabelled(self.fixture)
        return [self.fixture, once, relabelled(once)]

    @cached_property
    def cases(self) -> list[Case]:
        """The three requests."""
        found = []
        for number, fixture in enumerate(self.fixtures):
            drafts = sorted(self.session.cases(fixture), key=lambda pair: pair[1], reverse=True)
            at = 2 % len(drafts) if number == 2 else 0
            found.append(noted(self.session, drafts[at][0]))
        return found

    @cached_property
    def cut(self) -> list[Case]:
        """The three requests with less and less drafts."""
        found = []
        for less, case in enumerate(self.cases):
            count = max(0, self.fixture.gamma - less)
            p, q = case.p[: count + 1], case.q[: count + 1]
            kept = Case(p, q, case.tokens[:count], case.parents[:count], case.rule, case.shape)
            found.append(noted(self.session, kept))
        return found

    @cached_property
    def padded(self) -> list[Case]:
        """The same, with placeholders up to one number of drafts."""
        return [padded_draft(self.session, case, self.fixture.gamma) for case in self.cut]

    @property
    def band(self) -> float:
        """The largest TV that rounding explains, of one request."""
        return max(band_of(case) for case in self.cases)

    def affordable(self, cases: Sequence[Case]) -> bool:
        """Whether a call for these requests has few cells: at most all combinations of theirs."""
        found = [self.asked.law(case) for case in cases]
        return prod(len(got.cells) if got else MOST_CELLS + 1 for got in found) <= MOST_CELLS

    def alone(self, case: Case) -> Mass | None:
        """Return the law of a request alone; None if it cannot be measured."""
        got = self.asked.law(case)
        return None if got is None else dict(got.law)

    def joint(self, *order: int, ragged: bool = False) -> Mass | None:
        """Return the law of a call for requests in this order; None if it cannot be measured."""
        key = (*order, -1) if ragged else order
        if key not in self._joint:
            alone = self.cut if ragged else self.cases
            handed = self.padded if ragged else self.cases
            batch = cast(Case, Mixed([handed[at] for at in order]))
            if self.affordable([alone[at] for at in order]):
                subject = self.session.subject
                self._joint[key] = self.asked.together(subject, batch, len(order))
        got = self._joint.get(key)
        return None if got is None else dict(got.law)

    def compared(self, label: str, wanted: Mass, got: Mass, requests: int) -> Result:
        """Return what a measured law says of the one that is due, for so many requests."""
        gap = float(tv(got, wanted))
        result = Result("pass", MEASURED, gap, 0, label, wanted, got)
        if gap > 2 * requests * self.band:  # both are measured, each off by its rounding
            result.verdict = "fail"
            result.problem = next((str(out) for out in map(_problem, got) if out), "")
        return result


def _problem(outcome: Any) -> Problem | None:
    parts = (outcome,) if isinstance(outcome, Problem) else outcome
    return next((part for part in parts if isinstance(part, Problem)), None)


def _row(joint: Mass, at: int) -> Mass:
    """Return the law of one row of a call."""
    return mixed(({rows[at]: mass}, Fraction(1)) for rows, mass in joint.items())


def _product(*laws: Mass) -> Mass:
    """Return the law of independent rows."""
    out: Mass = {(): Fraction(1)}
    for law in laws:
        out = {
            (*rows, one): mass * chance for rows, mass in out.items() for one, chance in law.items()
        }
    return out


def _row_alone(batch: _Batch) -> Result | None:
    joint = batch.joint(0, 1)
    results = []
    for at in range(2):
        alone = batch.alone(batch.cases[at])
        if joint is None or alone is None:
            return None
        label = f"row {at} of two requests does not follow the law of its own"
        results.append(batch.compared(label, alone, _row(joint, at), 1))
    return max(results, key=lambda result: result.tv)


def _independent(batch: _Batch) -> Result | None:
    joint = batch.joint(0, 1)
    if joint is None:
        return None
    label = "the rows of two requests are not independent"
    return batch.compared(label, _product(_row(joint, 0), _row(joint, 1)), joint, 2)


def _neighbours(batch: _Batch) -> Result | None:
    one, other = batch.joint(0, 1), batch.joint(0, 2)
    if one is None or other is None:
        return None
    label = "the law of a request changes with the one behind it"
    return batch.compared(label, _row(one, 0), _row(other, 0), 1)


def _permuted(batch: _Batch) -> Result | None:
    there, back = batch.joint(0, 1), batch.joint(1, 0)
    if there is None or back is None:
        return None
    label = "two requests in the other order do not get the law in the other order"
    return batch.compared(label, {rows[::-1]: mass for rows, mass in there.items()}, back, 2)


def _chunks(batch: _Batch) -> Result | None:
    whole, pair, last = batch.joint(0, 1, 2), batch.joint(0, 1), batch.alone(batch.cases[2])
    if whole is None or pair is None or last is None:
        return None
    label = "three requests get another law than two of them and one alone"
    wanted = {
        (*rows, one): mass * chance for rows, mass in pair.items() for one, chance in last.items()
    }
    return batch.compared(label, wanted, whole, 3)


def _ragged(batch: _Batch) -> Result | None:
    if not batch.session.subject.placeholders or batch.session.subject.shape != "chain":
        return None
    whole = batch.joint(0, 1, 2, ragged=True)
    alone = [batch.alone(case) for case in batch.cut]
    known = [law for law in alone if law is not None]
    if whole is None or len(known) < 3:
        return None
    label = "requests with less and less drafts get another law in one call than alone"
    return batch.compared(label, _product(*known), whole, 3)


def _many(batch: _Batch) -> Result | None:
    """Count the rows of large calls, against the laws of the requests alone."""
    session = batch.session
    laws = [batch.alone(case) for case in batch.cases]
    known = [law for law in laws if law is not None]
    if len(known) < len(laws):
        return None
    calls = 8
    rows = [batch.cases[row % 3] for row in range(MANY)]
    seen: list[list[Outcome]] = [[], [], []]
    for call in range(calls):
        case = cast(Case, Mixed(rows))
        out = session.subject.sample(case, MANY, seed_of(session.seed, 4_000 + call))
        for row, outcome in enumerate(out):
            seen[row % 3].append(outcome)
    worst = Result("pass", MEASURED, 0.0, calls)
    for at, law in enumerate(known):
        counts = {outcome: seen[at].count(outcome) for outcome in set(seen[at])}
        found = weigh(law, counts, session.profile.tv)
        if found.alarm(session.tests * 3) and found.gap > worst.tv:
            label = f"in calls of {MANY} rows, request {at} does not follow the law of its own"
            got = {out: Fraction(count, len(seen[at])) for out, count in counts.items()}
            worst = Result("fail", MEASURED, found.gap, calls, label, law, got)
            worst.problem = next((str(out) for out in map(_problem, counts) if out), "")
    return worst


COUNTED = "row alone"

LOOKS: dict[str, Callable[[_Batch], Result | None]] = {
    COUNTED: _row_alone,
    "independent rows": _independent,
    "neighbours": _neighbours,
    "permuted": _permuted,
    "chunks": _chunks,
    "many rows": _many,
    "ragged": _ragged,
}
"""What is compared with what, by name; where no law can be measured, the first by counts alone."""

ON = {COUNTED: "wide", "independent rows": "wide", "many rows": "wide", "ragged": "deep"}
"""The fixtures of those that do not take the small one."""


def _counted(batch: _Batch) -> Result:
    """Count the rows of calls for requests that are drawn, against what is due to them."""
    session = batch.session
    checks = [_due(session, fixture) for fixture in batch.fixtures[:2]]
    wanted: Mass = {
        (number, key): mass / 2
        for number, check in enumerate(checks)
        for key, mass in check.wanted.items()
    }

    def draw(rows: int, seed: int, rng: Any) -> Iterator[Hashable]:
        done = call = 0
        while done < rows:
            size = min(SIZES[call % len(SIZES)], rows - done)
            which = rng.integers(2, size=size)
            cases = [_one(checks[number], rng) for number in which]
            batch = cast(Case, Mixed(cases))
            out = session.subject.sample(batch, size, seed_of(seed, call))
            for number, outcome in zip(which, out, strict=True):
                yield int(number), checks[number].see(outcome, rng)
            done, call = done + size, call + 1

    counts = tally(session, wanted, draw, seed_of(session.seed, 4_100))
    result, impossible = weighed(session, wanted, counts)
    result.label = "rows of calls for several requests do not follow the laws of their own"
    if impossible is not None and isinstance(impossible[1], Problem):
        result.problem = str(impossible[1])
    return result


def _due(session: Session, fixture: Fixture) -> Check:
    """Return what is due to the drafts of a fixture, as the declared rule or the target has it."""
    drafts = tuple((noted(session, case), weight) for case, weight in session.cases(fixture))
    if session.rule is None:
        return over(session, fixture, drafts)
    rule = RULES[session.rule]
    laws = {case: rule_law(rule, case.root()) for case, _ in drafts}
    known = {case: law for case, law in laws.items() if law is not None}
    total = sum((weight for case, weight in drafts if case in known), Fraction(0))
    held = tuple((case, weight / total) for case, weight in drafts if case in known)
    wanted = mixed((known[case], weight) for case, weight in held)
    return Check("", held, {text: mass for text, mass in wanted.items() if mass})


def _one(check: Check, rng: Any) -> Case:
    weights = np.array([float(weight) for _, weight in check.drafts])
    return check.drafts[int(rng.choice(len(weights), p=weights / weights.sum()))][0]
