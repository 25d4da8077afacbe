"""Seeds: the seed decides every draw, and nothing else does.

A sampler may say so (`seeded = True`), or do so without saying. Then a call with the same seed
gives the same rows, whatever state the global generators are in and whatever was called before, and
another seed gives other rows somewhere. Only outputs are compared, so this holds for samplers of
any kind, and what fails is certain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from specref.gate.cases import Fixture, sampled_fixtures
from specref.gate.errors import UsageError, nearest
from specref.gate.exact import Instrument
from specref.gate.report import Finding
from specref.gate.seeds import ambient, seed_of, states_kept
from specref.gate.session import Session
from specref.gate.subject import Outcome, Problem, Proposal

CLAIM = "seeds"

ROWS = 32
"""Rows of a call."""

CASES = 3
"""The likeliest drafts of the fixture, each called for."""

SEEDS = 8
"""Seeds that should not all give the same rows."""

Rows = list[Outcome] | list[Proposal] | Problem


@dataclass
class _Calls:
    """Calls of one subject on the likeliest drafts of a fixture."""

    session: Session
    fixture: Fixture

    def __post_init__(self) -> None:
        found = sorted(self.session.cases(self.fixture), key=lambda pair: pair[1], reverse=True)
        self.cases = [case for case, _ in found[:CASES]]

    def seed(self, number: int) -> int:
        """Return a seed of this check's own."""
        return seed_of(self.session.seed, 5_000 + number)

    def rows(self, seed: int | None) -> list[Rows]:
        """Return what calls on every case give with a seed: rounds, and drafts of its own."""
        subject, given = self.session.subject, cast(int, seed)
        found: list[Rows] = [subject.sample(case, ROWS, given) for case in self.cases]
        if subject.propose is not None:
            levels = self.session.levels(self.fixture)
            found.append(subject.proposals(levels, ROWS, given))
        return found

    def disturb(self) -> None:
        """Do what must not matter: call for other things, and use up global random numbers."""
        subject = self.session.subject
        for number, case in enumerate(reversed(self.cases)):
            subject.sample(case, 1 + number, self.seed(100 + number))
        if subject.propose is not None:
            subject.proposals(self.session.levels(self.fixture), 3, self.seed(200))
        ambient(self.seed(300))


def judge(session: Session, instrument: Instrument | None = None) -> list[Finding]:
    """Return a finding for each way in which the seed does not decide, or one if it does.

    Args:
        session: whose subject is asked.
        instrument: not used: plain calls settle it.
    """
    fixture = session.fit(sampled_fixtures(session.subject.shape, session.width)[0])
    with states_kept():
        session.say("seeds")
        calls = _Calls(session, fixture)
        if not session.subject.seeded and _same_seed(calls):
            text = (
                "its seed does not decide its draws; declare seeded = True to have it held to that"
            )
            return [Finding(CLAIM, session.rule, "", "not applicable", message=text)]
        return _judged(calls, list(LOOKS))


def again(
    session: Session, claim: str, data: Mapping[str, Any], instrument: Instrument | None = None
) -> list[Finding]:
    """Repeat one look on the fixture of an earlier failure.

    Raises:
        UsageError: the data names no such look.
    """
    name = str(data.get("relation"))
    if claim != CLAIM or name not in LOOKS:
        raise UsageError(f"seeds have no relation {name!r}{nearest(name, LOOKS)}")
    with states_kept():
        return _judged(_Calls(session, Fixture.from_json(data)), [name])


def _judged(calls: _Calls, names: list[str]) -> list[Finding]:
    session = calls.session
    failures, held, left = [], [], []
    for name in names:
        if name == UNSEEDED and not session.subject.seeded:
            continue
        text = LOOKS[name](calls)
        if text is None:
            left.append(name)
        elif text:
            data = {**calls.fixture.to_json(), "relation": name}
            told = f"{name}: {text}"
            failures.append(Finding(CLAIM, session.rule, "", "fail", "stream", None, told, data))
        else:
            held.append(name)
    if failures:
        return failures
    message = f"{len(held)} ways to look at seeds: {', '.join(held)}"
    if left:
        message += f"; nothing to be seen of: {', '.join(left)}"
    return [Finding(CLAIM, session.rule, "", "pass", message=message)]


def _same_seed(calls: _Calls) -> str | None:
    """Call twice with a seed, under other states of the global generators."""
    ambient(calls.seed(1))
    first = calls.rows(calls.seed(0))
    ambient(calls.seed(2))
    if calls.rows(calls.seed(0)) != first:
        return "two calls with one seed differ, under other states of the global generators"
    return ""


def _history(calls: _Calls) -> str | None:
    """Call with a seed before and after other calls, with other seeds, and dummy draws."""
    ambient(calls.seed(1))
    first = calls.rows(calls.seed(0))
    calls.disturb()
    if calls.rows(calls.seed(0)) != first:
        return "a call with one seed differs after other calls"
    return ""


def _other_seed(calls: _Calls) -> str | None:
    """Call with other seeds, in one state of the global generators."""
    seen = []
    for number in range(SEEDS):
        ambient(calls.seed(1))
        seen.append(calls.rows(calls.seed(10 + number)))
    if not any(map(_vary, seen)):
        return None
    same = all(rows == seen[0] for rows in seen)
    return f"{SEEDS} seeds give the same rows" if same else ""


def _unseeded(calls: _Calls) -> str | None:
    """Call twice without a seed; nothing is said of a sampler that wants one."""
    ambient(calls.seed(1))
    first, second = calls.rows(None), calls.rows(None)
    if any(map(_raised, first)) or not _vary(first):
        return None
    return "two calls without a seed give the same rows" if first == second else ""


def _vary(found: list[Rows]) -> bool:
    """Whether the rows of some call differ: else there is nothing that a seed could decide."""
    return any(not isinstance(rows, Problem) and len(set(rows)) > 1 for rows in found)


def _raised(rows: Rows) -> bool:
    return isinstance(rows, Problem) or any(isinstance(row, Problem) for row in rows)


UNSEEDED = "unseeded"

LOOKS: dict[str, Callable[[_Calls], str | None]] = {
    "same seed": _same_seed,
    "history": _history,
    "other seed": _other_seed,
    UNSEEDED: _unseeded,
}
"""What is called, by name.

Each returns what is wrong, "" if nothing is, and None where it cannot be seen.
"""
