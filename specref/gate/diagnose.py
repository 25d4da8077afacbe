"""Name the fault: which wrong sampler has exactly the law that was measured?"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from specref.choice import law
from specref.dist import as_fraction, tv
from specref.draft import Drafter, Node
from specref.faults import FAULTS
from specref.gate.cases import Case, exact
from specref.gate.checks import Deviation, Reading, band_of
from specref.rules import RULES

MOST_READINGS = 24
"""So many cases tell all known faults apart that can be told apart."""


def nearest(readings: Sequence[Reading], shape: str, rule: str | None) -> dict[str, Any] | None:
    """Return the faults whose conditional law is the measured one, or the one it resembles.

    Args:
        readings: measured cases; the most telling are picked.
        shape: "chain" or "tree".
        rule: the declared rule, if any. Without one, honest rules are candidates too.
    """
    chosen = _telling(readings, rule)
    if rule is not None and _farthest(RULES[rule].verify, [r for r in chosen if r.defined]) <= 1:
        return None  # the verifier is right; what is wrong lies outside of these readings
    candidates = {
        name: fault.rule.verify
        for name, fault in FAULTS.items()
        if fault.verify is not None and fault.rule.shape == shape
    }
    if rule is None:
        candidates |= {
            f"rule {name}": entry.verify for name, entry in RULES.items() if entry.shape == shape
        }
    distance = {name: _farthest(verify, chosen) for name, verify in candidates.items()}
    return _answer(distance, rule)


def nearest_edge(deviation: Deviation, shape: str, rule: str | None) -> dict[str, Any] | None:
    """Return the faults that give the impossible outcome with the measured probability.

    Only they count: elsewhere the laws differ by less than rounding, as honest ones do.
    """
    reading = deviation.reading
    distance: dict[str, float] = {}
    for name, fault in FAULTS.items():
        if fault.verify is None or fault.rule.shape != shape:
            continue
        masses = _law(fault.rule.verify, reading.root)
        mass = sum((masses.get(out, Fraction(0)) for out in deviation.outcomes), Fraction(0))
        distance[name] = float(2 * abs(mass - deviation.tv) / deviation.tv)
    return _answer(distance, rule, resembles=False)


def nearest_drafter(
    measured: dict[tuple[int, ...], Fraction], case: Case, limit: float
) -> dict[str, Any] | None:
    """Return the faults whose drafts have the measured law of proposals on a chain's q rows."""
    p = [exact(row, case.dtype) for row in case.p]
    q = [exact(row, case.dtype) for row in case.q]
    distance: dict[str, float] = {}
    for name, fault in FAULTS.items():
        if fault.draft is not None and fault.rule.shape == "chain":
            wanted = proposals_law(
                fault.draft, lambda text: p[len(text)], lambda text: q[len(text)], case.gamma
            )
            distance[name] = float(tv(measured, wanted)) / limit
    return _answer(distance, None)


def proposals_law(drafter: Drafter, p: Any, q: Any, gamma: int) -> dict[Any, Fraction]:
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


def _farthest(verify: Any, readings: Iterable[Reading]) -> float:
    """Return the largest distance of a law from the measured one, in units of rounding."""
    return max(
        (float(tv(_law(verify, r.root), r.got)) / band_of(r.case) for r in readings), default=0.0
    )


def _law(verify: Any, root: Node) -> dict[Any, Fraction]:
    return {out: as_fraction(mass) for out, mass in law(lambda c: verify(root, c)).items()}


def _answer(
    distance: dict[str, float], rule: str | None, resembles: bool = True
) -> dict[str, Any] | None:
    """Turn distances, in units of what rounding allows, into names."""
    if not distance:
        return None

    def preference(name: str) -> tuple[bool, float]:
        fault = FAULTS.get(name)
        return (rule is not None and (fault is None or fault.base != rule), distance[name])

    matches = sorted((name for name, d in distance.items() if d <= 1), key=preference)
    closest = min(distance, key=lambda name: distance[name])
    if not matches and not resembles:
        return None
    named = matches[0] if matches else closest
    fault = FAULTS.get(named)
    return {
        "matches": matches,
        "resembles": None if matches else closest,
        "computed": fault.computed if fault else f"this is the law of the {named}",
        "should": fault.should if fault else "",
        "links": list(fault.links) if fault else [],
    }


def names(diagnosis: dict[str, Any] | None) -> Iterable[str]:
    """Return the names of the faults that match."""
    return diagnosis["matches"] if diagnosis else []
