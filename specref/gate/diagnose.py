"""Name the fault: which wrong sampler has exactly the law that was measured?"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import inf, log
from typing import Any

from specref.choice import law
from specref.dist import as_fraction, tv
from specref.draft import DRAFTS, Drafter, Node
from specref.faults import FAULTS
from specref.gate.cases import Case, exact
from specref.gate.checks import Deviation, Reading, band_of
from specref.gate.report import NearestFault
from specref.gate.subject import Subject
from specref.model import Model
from specref.rules import RULES, Rule, Verify

MOST_READINGS = 24
"""So many cases tell all known faults apart that can be told apart."""


def nearest(readings: Sequence[Reading], subject: Subject, rule: str | None) -> NearestFault | None:
    """Return the known samplers whose law on given drafts is the measured one, or the one it nears.

    Honest rules are candidates like faults are: a sampler may be right, and another rule than it
    says. If the verifier is the declared rule, what is wrong can only be the law of the drafts that
    it is given, so only faults with the subject's own kind of drafts are left.

    Args:
        readings: measured cases; the most telling are picked.
        subject: whose readings they are.
        rule: the rule that it is held to, if any.
    """
    chosen = _telling(readings, rule)
    faults = _wrong_rules(subject.shape, subject.drafter)
    honest = _rules(subject.shape, subject.drafter)
    if rule is not None:
        honest.pop(f"rule {rule}", None)
        declared = RULES[rule].verify
        if _farthest(declared, [r for r in chosen if r.defined], 0.0) <= 1:
            given = {n: v for n, v in faults.items() if FAULTS[n].draft is subject.drafter}
            return _answer(_distances(given, chosen), rule)
    right = _distances(honest, chosen)
    distance = _distances(faults, chosen)
    # Where the right rule matches, its faults that match are those that hide in rounding.
    plain = {n: d for n, d in distance.items() if right.get(f"rule {FAULTS[n].base}", inf) > 1}
    if rule is not None:
        right["declared"] = _farthest(declared, chosen)
    return _answer(right | plain, rule, min(right.values(), default=inf) / 2)


def _wrong_rules(shape: str, drafter: Drafter) -> dict[str, Verify]:
    """Return the wrong rules that a sampler of such drafts may compute, by name of the fault."""
    return {
        name: fault.verify
        for name, fault in FAULTS.items()
        if fault.verify is not None and _fits(fault.rule, shape, drafter)
    }


def _rules(shape: str, drafter: Drafter) -> dict[str, Verify]:
    """Return the rules that a sampler of such drafts may compute, by the name that reports show."""
    return {
        f"rule {name}": rule.verify for name, rule in RULES.items() if _fits(rule, shape, drafter)
    }


def _fits(rule: Rule, shape: str, drafter: Drafter) -> bool:
    """Whether a sampler of such drafts may compute a rule: some refuse all but their own drafts."""
    own = not rule.own_drafts or rule.draft is drafter
    return own and rule.shape == shape and not rule.off_path


def likeliest(
    roots: Sequence[Node], seen: Mapping[tuple[int, Any], int], subject: Subject
) -> NearestFault | None:
    """Return the fault under which counts are clearly likelier than under honest rules, if any.

    Args:
        roots: the drafts.
        seen: counts by (number of the draft, outcome).
        subject: who made them.
    """
    candidates = _wrong_rules(subject.shape, subject.drafter) | _rules(
        subject.shape, subject.drafter
    )

    def surprise(verify: Verify) -> float:
        masses = [_law(verify, root) or {} for root in roots]
        total = 0.0
        for (index, outcome), count in seen.items():
            mass = masses[index].get(outcome, 0)
            total -= count * log(mass) if mass else -inf
        return total

    # No law does better than the frequencies themselves: what is beyond their surprise counts.
    drawn: Counter[int] = Counter()
    for (index, _), count in seen.items():
        drawn[index] += count
    least = -sum(count * log(count / drawn[index]) for (index, _), count in seen.items())
    excess = {name: surprise(verify) - least for name, verify in candidates.items()}
    right = {f"rule {name}" for name, rule in RULES.items() if rule.lossless}
    closest = min(excess, key=lambda name: excess[name])
    honest = min(excess[name] for name in excess if name in right)
    if closest in right or excess[closest] == inf or excess[closest] > honest / 2:
        return None
    return _named(closest, [])


def nearest_edge(deviation: Deviation, subject: Subject, rule: str | None) -> NearestFault | None:
    """Return the faults that give the impossible outcome with the measured probability.

    Only they count: elsewhere the laws differ by less than rounding, as honest ones do.
    """
    reading = deviation.reading
    distance: dict[str, float] = {}
    for name, verify in _wrong_rules(subject.shape, subject.drafter).items():
        masses = _law(verify, reading.root) or {}
        mass = sum((masses.get(out, Fraction(0)) for out in deviation.outcomes), Fraction(0))
        distance[name] = float(2 * abs(mass - deviation.tv) / deviation.tv)
    return _answer(distance, rule)


def nearest_drafter(
    measured: dict[tuple[int, ...], Fraction], case: Case, limit: float
) -> NearestFault | None:
    """Return the faults whose drafts have the measured law of proposals on a chain's q rows."""
    p = [exact(row, case.dtype) for row in case.p]
    q = [exact(row, case.dtype) for row in case.q]

    def drafts(drafter: Drafter) -> dict[tuple[int, ...], Fraction]:
        return proposals_law(
            drafter, lambda text: p[len(text)], lambda text: q[len(text)], case.gamma
        )

    honest = drafts(DRAFTS["with_replacement"])
    distance: dict[str, float] = {}
    for name, fault in FAULTS.items():
        if fault.draft is not None and fault.rule.shape == "chain":
            wanted = drafts(fault.draft)
            distance[name] = float(tv(measured, wanted)) / limit
    return _answer(distance, None, float(tv(measured, honest)) / limit / 2)


def proposals_law(
    drafter: Drafter, p: Model, q: Model, gamma: int
) -> dict[tuple[int, ...], Fraction]:
    """Return the exact law of the tokens a chain drafter proposes."""

    def program(choose: Any) -> Any:
        node, tokens = drafter(p, q, gamma, choose, ()), []
        while node.children:
            ((x, node),) = node.children
            tokens.append(x)
        return tuple(tokens)

    return {tokens: as_fraction(mass) for tokens, mass in law(program).items()}


def _telling(readings: Sequence[Reading], rule: str | None) -> list[Reading]:
    """Return few cases: those that deviate most from the declared rule, and the richest others."""

    def score(reading: Reading) -> float:
        return float(tv(reading.got, reading.wanted)) if reading.defined else 0.0

    richest = sorted(readings, key=lambda r: -len(r.got) * (r.case.gamma + 1))
    farthest = sorted(readings, key=score, reverse=True) if rule else []
    chosen: list[Reading] = []
    for reading in (*farthest[: MOST_READINGS // 2], *richest):
        if len(chosen) < MOST_READINGS and all(reading is not other for other in chosen):
            chosen.append(reading)
    return chosen


def _farthest(verify: Verify, readings: Iterable[Reading], otherwise: float = inf) -> float:
    """Return the largest distance of a law from the measured one, in units of rounding.

    Args:
        verify: whose law; looked at where it has one.
        readings: what was measured.
        otherwise: the answer if it has none on any of them.
    """
    laws = [(_law(verify, reading.root), reading) for reading in readings]
    return max(
        (float(tv(has, r.got)) / band_of(r.case) for has, r in laws if has is not None),
        default=otherwise,
    )


def _law(verify: Verify, root: Node) -> dict[Any, Fraction] | None:
    """Return an exact law; None on drafts that the drafter of a rule never gives it."""
    try:
        return {out: as_fraction(mass) for out, mass in law(lambda c: verify(root, c)).items()}
    except (ValueError, ZeroDivisionError):
        return None


def _distances(candidates: Mapping[str, Verify], readings: Iterable[Reading]) -> dict[str, float]:
    return {name: _farthest(verify, readings) for name, verify in candidates.items()}


def _answer(
    distance: Mapping[str, float], rule: str | None, resembles: float = 0.0
) -> NearestFault | None:
    """Turn distances, in units of what rounding allows, into names.

    Args:
        distance: by candidate.
        rule: faults of this rule come first.
        resembles: a candidate that does not match is named only if it is nearer than this.
    """

    def preference(name: str) -> tuple[bool, float]:
        fault = FAULTS.get(name)
        return (rule is not None and (fault is None or fault.base != rule), distance[name])

    matches = sorted((name for name, d in distance.items() if d <= 1), key=preference)
    if matches:
        return _named(matches[0], matches)
    closest = min(distance, key=lambda name: distance[name], default="")
    return _named(closest, []) if closest and distance[closest] < resembles else None


def _named(name: str, matches: list[str]) -> NearestFault:
    fault = FAULTS.get(name)
    rule = RULES.get(name.removeprefix("rule "))
    lossy = ", which is lossy" if rule is not None and not rule.lossless else ""
    return {
        "matches": matches,
        "resembles": None if matches else name,
        "computed": fault.computed if fault else f"this is the law of the {name}{lossy}",
        "should": fault.should if fault else "",
        "links": list(fault.links) if fault else [],
    }
