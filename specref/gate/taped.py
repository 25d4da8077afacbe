"""Read laws off the tape, and hold them to the random numbers that the subject really draws."""

from contextlib import AbstractContextManager, nullcontext
from math import ceil, inf
from typing import Any

from specref.gate import stream
from specref.gate.audit import Audit, audit, bound, row_work
from specref.gate.cases import Case
from specref.gate.cell import Measured
from specref.gate.checks import Reading
from specref.gate.exact import Groups, Program
from specref.gate.measure import measure
from specref.gate.report import MEASURED, Finding
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import Outcome

FEW = 8
"""Real draws that each case gets, however unlikely its draft."""


class Taped:
    """The tape as an instrument (`gate.exact.Instrument`): for what is computed in torch."""

    sees_single_draws = True
    reads_programs = True

    def __init__(self, session: Session) -> None:
        self.session = session

    def ready(self) -> AbstractContextManager[Any]:
        """Set up nothing: each run has a tape of its own."""
        return nullcontext()

    def law(self, case: Case, budget: int) -> Measured:
        """Measure one round on a case."""
        sample = self.session.subject.sample
        return self.program(lambda tape, seed: sample(case, 1, seed)[0], budget)

    def program(self, program: Program, budget: int) -> Measured:
        """Measure a program."""
        return measure(program, budget)

    def sharper(self, case: Case, tv: float) -> Measured | None:
        """Give up: what the tape reads has no blur."""
        return None

    def audit(self, groups: Groups, others: list[Reading]) -> Finding:
        """Compare real draws with the cells that they fall in, on every case."""
        session, profile = self.session, self.session.profile
        calls = profile.audit_calls
        work = row_work(lambda n, seed: self._sample(groups[-1][1][0], n, seed), session.seed)
        rows = 0 if work is None else max(calls, profile.audit_rows // (1 + work))
        total, least = Audit(), inf
        for number, (fixture, group) in enumerate(groups):
            session.say(f"audit of {fixture.name}, {number + 1}/{len(groups)}")
            seed = seed_of(session.seed, number)
            for at, reading in enumerate(group):
                found = self._audited(reading, rows, calls, seed_of(seed, at))
                total.add(found)
                # So many draws of whole rounds, drafts and all, are as good as these.
                least = min(least, float(found.rows / reading.weight))
        for at, reading in enumerate(others):
            seed = seed_of(session.seed, len(groups) + at)
            total.add(self._audited(reading, min(1, rows), 1, seed))
        finding = Finding("audit", session.rule, MEASURED, "pass")
        if total.misses:
            finding.verdict = "inconclusive"
            finding.message = (
                f"{total.misses:,} of {total.rows:,} real draws gave another outcome than their "
                f"cell ({total.example}): something that the tape does not see takes part"
            )
        else:
            finding.bound = bound(least * len(groups))
            finding.message = (
                f"{total.rows:,} real draws, on every case, none outside its cell; the joint law "
                f"is off by at most {bound(least, len(groups)):.2g} on any pair of models"
            )
        return finding

    def _audited(self, reading: Reading, rows: int, calls: int, seed: int) -> Audit:
        """Compare as many draws of one case as its draft's probability asks for, and a few."""

        def share(count: int) -> int:
            return ceil(count * reading.weight) + FEW if count else 0

        return audit(
            reading.measured,
            lambda n, at: self._sample(reading, n, at),
            share(rows),
            share(calls),
            seed,
        )

    def _sample(self, reading: Reading, n: int, seed: int) -> list[Outcome]:
        return self.session.subject.sample(reading.case, n, seed)

    def repeats(self, case: Case) -> str:
        """Return how a state of a generator is used twice, or ""."""
        subject, seed = self.session.subject, self.session.seed

        def call(rows: int, number: int) -> None:
            if subject.propose is not None:
                subject.proposals(case, rows, seed_of(seed, stream.CALLS + number))
            subject.sample(case, rows, seed_of(seed, number))

        return stream.repeated_states(call, seed)

    def shares(self, case: Case) -> str:
        """Return how one draw of a call decides several of its rows, or ""."""
        return stream.shared_draws(self.session.subject, case)
