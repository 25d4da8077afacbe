"""Whole sequences: what a subject's `generate` is asked, what comes back, and the law of that.

The law is measured on the tape where the engine draws in torch; elsewhere texts are counted. Either
way a `Reading` holds what was seen of one request beside the law of plain decoding.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import log, sqrt
from typing import Any, cast

import numpy as np

from specref.decode import target_law
from specref.dist import as_fraction
from specref.dist import tv as distance
from specref.gate.cell import Measured
from specref.gate.checks import band
from specref.gate.evidence import RISK, rows_needed, weigh
from specref.gate.limit import TimeLimit, limited
from specref.gate.models import Request
from specref.gate.report import MEASURED, SAMPLES
from specref.gate.seeds import seed_of
from specref.gate.session import Session
from specref.gate.subject import MOST_ROWS, Hung, Outcome, Problem, describe
from specref.stops import Text

Masses = dict[Any, Fraction]

FIRST_LOOK = 1 << 10
"""Rows at the first look; each look doubles them."""

SINGLES = 1 << 6
"""Of these, so many are calls of one row."""

MOST_SLOW = 1 << 8
"""Real draws that are compared with the cells of one request on a subject's own model, at most."""

UNCERTIFIED = 1 << 12
"""Rows of a request that counts need not certify."""


class Engine:
    """A subject's `generate`, spoken to with care.

    Args:
        session: whose subject it is.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.subject = session, session.subject

    def texts(self, request: Request, n: int, seed: int, model: Any = None) -> list[Outcome]:
        """Ask for n sequences; return one text per row, or the same `Problem` for all of them.

        Args:
            request: what is asked for.
            n, seed: rows, and the seed of the call.
            model: in place of the request's own.

        Raises:
            Hung: the call took too long.
        """
        generate, seconds = self.subject.generate, self.subject.time_limit
        assert generate is not None
        given = request.model if model is None else model
        try:
            with limited(seconds):
                raw = generate(given, n, seed, request.max_tokens, tuple(request.eos))
        except TimeLimit:
            raise Hung("generate", request, n, seconds) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return [Problem("exception", describe(error))] * n
        return texts(raw, request, n)


def texts(raw: Any, request: Request, n: int) -> list[Outcome]:
    """Return the outcome of each row of what `generate` returned."""
    limit, vocab = request.max_tokens, request.model.vocab
    if raw is None:
        return [Problem("shape", "generate returned nothing")] * n
    try:
        array = np.asarray(raw.detach().cpu().numpy() if hasattr(raw, "detach") else raw)
    except Exception as error:
        return [Problem("shape", f"generate returned no array: {describe(error)}")] * n
    if not limit and array.size == 0 and len(array) == n:
        return [()] * n  # lists of no tokens have no type
    if array.ndim != 2 or len(array) != n or array.shape[1] < limit:
        return [Problem("shape", f"generate returned {array.shape}; expected {(n, limit)}")] * n
    if array.dtype.kind not in "iu":
        return [Problem("dtype", f"generate returned {array.dtype}; expected integers")] * n
    return [_text([int(x) for x in row], vocab) for row in array]


def _text(row: list[int], vocab: int) -> Outcome:
    length = row.index(-1) if -1 in row else len(row)
    if any(x != -1 for x in row[length:]):
        return Problem("padding", f"tokens after the first -1: {row}")
    for x in row[:length]:
        if not 0 <= x < vocab:
            return Problem("range", f"token {x} is outside 0 <= token < {vocab}")
    return tuple(row[:length])


def impossible(outcome: Outcome, request: Request, wanted: Mapping[Any, Any]) -> str:
    """Return why plain decoding never gives an outcome, or ""."""
    if isinstance(outcome, Problem):
        return str(outcome)
    if wanted.get(outcome):
        return ""
    cut = request.stops.cut(outcome)
    if len(cut) < len(outcome):
        after = {"eos": f"EOS {cut[-1]}" if cut else "", "stop": "a stop sequence"}.get(
            str(request.stops.reason(cut)), f"{len(cut)} tokens, the limit"
        )
        return f"the text goes on after {after}"
    if not request.stops.over(outcome):
        return f"the text stops early, without EOS and before {request.max_tokens} tokens"
    return "a token that the target forbids"


@dataclass
class Reading:
    """One request, and what the engine makes of it.

    Attributes:
        request: what was asked for.
        got: mass by outcome: measured, or the frequencies of what was counted.
        calls: runs, or rows.
        measured: the cells, where the law was measured.
        counts: rows by outcome, where they were counted.
        audited: real draws that were compared with the cells; none missed.
    """

    request: Request
    got: Masses
    calls: int
    measured: Measured | None = None
    counts: Counter[Outcome] | None = None
    audited: int = 0

    @cached_property
    def wanted(self) -> dict[Text, Fraction]:
        """The law of plain decoding."""
        return wanted(self.request)

    @property
    def depth(self) -> str:
        """How strong it is."""
        return SAMPLES if self.measured is None else MEASURED

    @property
    def band(self) -> float:
        """The largest TV that rounding explains; a temperature below 1 magnifies that of logits."""
        heat = float(self.request.parameters.get("temperature", 1)) or 1.0
        tokens = max(1, self.request.max_tokens)
        return band(self.request.model.vocab, tokens, self.request.dtype) * max(1.0, 1 / heat)

    def limit(self, law: Mapping[Any, Any]) -> float:
        """Return the largest distance of what was seen from a law, if the engine follows that law.

        Of n counted rows on K outcomes it exceeds sqrt(K/n)/2 + sqrt(ln(1/b)/(2n)) with a
        probability of at most b, which is `evidence.RISK`.
        """
        if self.counts is None:
            return self.band
        outcomes, rows = sum(1 for mass in law.values() if mass), self.calls
        return sqrt(outcomes / rows) / 2 + sqrt(log(1 / RISK) / (2 * rows))

    @cached_property
    def tv(self) -> float:
        """The distance from plain decoding."""
        return float(distance(self.got, self.wanted))

    @cached_property
    def impossible(self) -> dict[str, Fraction]:
        """The mass of what plain decoding never gives, by the kind of mistake."""
        found: dict[str, Fraction] = {}
        for outcome, mass in self.got.items():
            kind = impossible(outcome, self.request, self.wanted)
            if kind and mass:
                found[kind] = found.get(kind, Fraction(0)) + mass
        return found


def wanted(request: Request) -> dict[Text, Fraction]:
    """Return the exact law of plain decoding."""
    found = target_law(request.law, request.stops, tuple(request.model.prompt))
    return {text: as_fraction(mass) for text, mass in found.items() if mass}


class Reader:
    """Reads the laws of one engine, request by request.

    Attributes:
        escapes: why the tape is no use here.
        short: requests for which the budget of runs was too small.
    """

    def __init__(self, session: Session, requests: int) -> None:
        self.session, self.engine = session, Engine(session)
        self.escapes: list[str] = []
        self.short: list[str] = []
        # Each request is counted, its rows are compared in pairs, and its large calls counted.
        self.tests = session.tests + 3 * requests

    @property
    def taped(self) -> bool:
        """Whether laws are measured: torch has been imported, and nothing has escaped so far."""
        return "torch" in sys.modules and not self.escapes

    def read(self, request: Request, number: int) -> Reading:
        """Read the law of one request; its draws are seeded by the number."""
        seed = seed_of(self.session.seed, 2_000 + number)
        if self.taped:
            reading = self._measured(request, seed)
            if reading is not None:
                return reading
        return self._counted(request, seed)

    def program(self, request: Request, n: int = 1) -> Measured:
        """Measure a call of n rows: its outcome is the text, or the tuple of all n texts."""
        from specref.gate.measure import measure

        def run(_: Any, seed: int) -> Any:
            made = self.engine.texts(request, n, seed)
            return made[0] if n == 1 else tuple(made)

        got = measure(run, self.session.profile.calls)
        self.session.report.calls += got.calls
        self.session.report.cells += len(got.cells)
        return got

    def _measured(self, request: Request, seed: int) -> Reading | None:
        from specref.gate.audit import audit

        got = self.program(request)
        if got.exact:
            calls = self.session.profile.audit_calls
            if self.session.subject.models:
                calls = min(calls, MOST_SLOW)  # they may be real ones, and slow
            found = audit(got, lambda n, at: self.engine.texts(request, n, at), 0, calls, seed)
            if not found.misses:
                masses = cast(Masses, got.law)
                return Reading(request, masses, got.calls, got, audited=found.rows)
            got.escapes.append(
                f"{found.misses:,} of {found.rows:,} real draws gave another text than their cell "
                f"({found.example})"
            )
        if got.escapes:
            self.escapes += got.escapes
            known = self.session.report.escapes
            known += [reason for reason in got.escapes if reason not in known]
        else:
            self.short.append(request.name)
        return None

    def _counted(self, request: Request, seed: int) -> Reading:
        """Count texts until they certify the law, or refute it."""
        law, tv = wanted(request), self.session.profile.tv
        need = rows_needed(len(law), tv) if request.certified else UNCERTIFIED
        need = min(need, SINGLES) if not request.max_tokens else need
        counts: Counter[Outcome] = Counter()
        for at in range(min(SINGLES, need)):
            counts.update(self.engine.texts(request, 1, seed_of(seed, at)))
        look = FIRST_LOOK
        while (rows := counts.total()) < need and not weigh(law, counts, tv).alarm(self.tests):
            n = min(look, need - rows, MOST_ROWS)
            counts.update(self.engine.texts(request, n, seed_of(seed, SINGLES + rows)))
            look = min(2 * look, MOST_ROWS)
        got = {outcome: Fraction(count, rows) for outcome, count in counts.items()}
        return Reading(request, got, rows, counts=counts)
