"""Learn laws from answers: for samplers in NumPy, in Python, or with draws as their argument."""

from contextlib import AbstractContextManager
from math import ceil, log
from typing import Any

from specref.gate.cases import Case
from specref.gate.cell import Measured
from specref.gate.checks import Reading
from specref.gate.evidence import RISK
from specref.gate.exact import Groups, Program
from specref.gate.inject import controlled
from specref.gate.opaque import Drawn, measure_opaque, measure_program, repeated_draws
from specref.gate.report import MEASURED, Finding
from specref.gate.seeds import seed_of
from specref.gate.session import Session

MOST_PROBES = 1 << 16
"""Largest number of probes for a closer look at one case."""


class Learned:
    """The learner as an instrument (`gate.exact.Instrument`): for what can be given its draws."""

    sees_single_draws = False

    def __init__(self, session: Session) -> None:
        self.session = session
        # Where `decide` is asked, nobody gives draws to whole programs around it.
        self.reads_programs = session.subject.decide is None

    def ready(self) -> AbstractContextManager[Any]:
        """Take over the generators once: finding all that hold one takes time."""
        return controlled()

    def law(self, case: Case, budget: int) -> Measured:
        """Learn one round on a case."""
        subject, profile = self.session.subject, self.session.profile
        probes, questions = profile.probes, profile.runs
        if subject.decide:  # its rows cost little beside calls of `sample`
            probes <<= 4
            questions += 4 * probes  # to spread first, to confirm, and to confirm twice more
        got = measure_opaque(subject, case, questions, self.session.seed, probes, probes)
        if not got.complete:
            got.escapes.append(f"{got.calls:,} answers do not part its draws into boxes")
        return got

    def sharper(self, case: Case, tv: float) -> Measured | None:
        """Learn one round again, from so many probes that they miss less than `tv`."""
        probes = ceil(log(2 / RISK) / tv)
        if probes > MOST_PROBES:
            return None
        subject, seed = self.session.subject, self.session.seed
        got = measure_opaque(subject, case, 4 * MOST_PROBES, seed, probes, min(probes, 1 << 12))
        return got if got.exact else None

    def program(self, program: Program, budget: int) -> Measured:
        """Learn a program."""
        profile = self.session.profile
        return measure_program(
            lambda seed: program(Drawn(seed), seed),
            profile.runs,
            self.session.seed,
            profile.probes,
            profile.probes,
        )

    def audit(self, groups: Groups, others: list[Reading]) -> Finding:
        """Say what the probes may have missed; they were compared as the laws were learned."""
        missed = [sum(float(r.weight) * r.measured.missed for r in group) for _, group in groups]
        calls = sum(r.measured.calls for _, group in groups for r in group)
        what = "decide" if self.session.subject.decide else "sample, on draws that it was given"
        return Finding(
            "audit",
            self.session.rule,
            MEASURED,
            "pass",
            message=f"cells learned from {calls:,} answers of {what}",
            bound=sum(missed) / len(missed),
        )

    def repeats(self, case: Case) -> str:
        """Return how a state of a generator is used twice, or ""."""
        subject = self.session.subject

        def program(seed: int) -> Any:
            own = subject.propose and subject.proposals(case, 4, seed_of(seed, 1))
            return own, subject.sample(case, 4, seed)

        return repeated_draws(program, seed_of(self.session.seed, 1))

    def shares(self, case: Case) -> str:
        """Say nothing: draws of a whole call are not moved one by one."""
        return ""
