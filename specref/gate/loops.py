"""Name the fault of an engine: which wrong loop, rule or law has exactly the law of its texts?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from specref.decode import sequence_law, target_law
from specref.dist import tv
from specref.draft import Shape
from specref.faults import FAULTS, Fault
from specref.gate.generated import Reading
from specref.gate.models import Request, ToyModel
from specref.gate.report import NearestFault
from specref.logits import Enclosure, Parameters
from specref.model import Context

DRAFTS = (1, 2)
"""Numbers of drafted tokens that are tried: nobody says how many an engine drafts. Of three tokens
that are asked for, no more are drafted at once."""

TREES: tuple[Shape, ...] = ((2,), (2, 2))
"""Widths of trees that are tried."""

MOST_READINGS = 4
"""So many requests tell faults apart."""

Laws = Callable[[Request], Mapping[Any, Any]]
"""From a request to the law of its texts."""


def nearest(readings: Sequence[Reading]) -> NearestFault | None:
    """Return the known faults whose law of whole texts is the one that was seen.

    Args:
        readings: of toy models, which have a draft model; the most telling are picked.
    """
    toys = [r for r in readings if isinstance(r.request.model, ToyModel) and r.tv > 0]
    wrong = [r for r in toys if r.tv > r.limit(r.wanted)]
    if not wrong:
        return None
    # The smallest failure first: few faults are left for the others.
    first = min(wrong, key=lambda r: len(r.wanted))
    others = sorted((r for r in toys if r is not first), key=lambda r: (r not in wrong, -r.tv))
    asked = bool(first.request.parameters)
    distance: dict[str, float] = {}
    for name, fault in FAULTS.items():
        if _fits(fault, asked):
            distance[name] = min(_distance(way, first, others) for way in _ways(fault))
    matches = sorted((name for name, d in distance.items() if d <= 1), key=distance.__getitem__)
    if matches:
        return _named(matches[0], matches)
    closest = min(distance, key=distance.__getitem__, default="")
    near = distance.get(closest, inf) < first.tv / first.limit(first.wanted) / 2
    return _named(closest, []) if near else None


def _distance(laws: Laws, first: Reading, others: Sequence[Reading]) -> float:
    """Return the largest distance of a law from what was seen, in units of what may be noise."""
    found = _from(laws, first)
    for reading in others[: MOST_READINGS - 1]:
        if found > 1:
            break
        found = max(found, _from(laws, reading))
    return found


def _from(laws: Laws, reading: Reading) -> float:
    try:
        law = laws(reading.request)
    except (ValueError, ZeroDivisionError, ImportError):
        return inf  # a fault that has no law here
    return float(tv(reading.got, law)) / reading.limit(law)


def _fits(fault: Fault, asked: bool) -> bool:
    """Whether an engine on toy models may have a fault: of laws only if parameters are asked."""
    if fault.law is not None:
        return asked
    return fault.target is None and (fault.rule.shape == "chain" or fault.loop is not None)


def _ways(fault: Fault) -> Iterator[Laws]:
    """Yield the laws of texts that a fault may have, one for each number of drafts."""
    if fault.law is not None:
        yield partial(_plainly, fault)
        return
    for shape in DRAFTS if fault.rule.shape == "chain" else TREES:
        yield partial(_rounds, fault, shape)


def _rounds(fault: Fault, shape: Shape, request: Request) -> Mapping[Any, Any]:
    p, q, stops, context = request.model.asked(request.max_tokens, request.eos)
    more = {} if fault.loop is None else {"loop": fault.loop}
    return sequence_law(fault.rule, p, q, shape, stops, context, **more)


def _plainly(fault: Fault, request: Request) -> Mapping[Any, Any]:
    """Return the law of plain decoding where each token follows the wrong law of a request."""
    model, prompt = request.model, request.model.prompt

    def wrong(context: Context) -> Any:
        assert fault.law is not None
        parameters = Parameters(**request.parameters)
        found = fault.law(model.scores(context), parameters, prompt, context[len(prompt) :])
        return found.inside() if isinstance(found, Enclosure) else found

    return target_law(wrong, request.stops, prompt)


def _named(name: str, matches: list[str]) -> NearestFault:
    fault = FAULTS[name]
    return {
        "matches": matches,
        "resembles": None if matches else name,
        "computed": fault.computed,
        "should": fault.should,
        "links": list(fault.links),
    }
