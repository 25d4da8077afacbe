"""Fixtures under sampling parameters: a grid of temperature, top-k, top-p and min-p.

Half of the public faults are not in the acceptance rule but in the laws that it is given: p or q
are not those that were asked for. So drafts and targets are tried as requests make them: filtered,
with zeros at different tokens in p and q, and with drafts that were filtered in another way than
the target. A verifier takes any q; it only has to be the law that the drafts came from.

Laws are exact (`specref.logits`, read as transformers does), and handed over as float32, as those
of all fixtures are; the reference law is that of the rows handed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np

from specref.draft import Shape
from specref.gate.cases import Fixture, Floats
from specref.logits import Parameters, Process, weights
from specref.model import Context

Table = Mapping[Context, tuple[int, ...]]
Draft = Literal["same", "raw", "greedy"]

# Square roots of the weights, by last token, so that temperature 2 is rational too. No row has
# ties. The likeliest tokens of target and draft are the same in some rows, overlap in others, and
# are disjoint in one; rows are flat and steep, so top-p and min-p keep more tokens or fewer.
TARGET: Table = {
    (): (6, 5, 4, 1),
    (0,): (2, 7, 3, 5),
    (1,): (5, 1, 9, 2),
    (2,): (3, 6, 2, 7),
    (3,): (8, 4, 5, 6),
}
DRAFT: Table = {
    (): (5, 1, 6, 4),
    (0,): (6, 3, 2, 5),
    (1,): (3, 8, 4, 1),
    (2,): (7, 4, 2, 3),
    (3,): (4, 6, 7, 3),
}


@dataclass(frozen=True)
class Point:
    """One point of the grid.

    Attributes:
        temperature, top_k, top_p, min_p: what is asked for, written as reports show it.
        draft: whether the draft is under the same parameters ("same"), under none of them ("raw"),
            or at temperature 0 while the target is not ("greedy").
    """

    temperature: str = "1"
    top_k: int | None = None
    top_p: str = "1"
    min_p: str = "0"
    draft: Draft = "same"

    @property
    def parameters(self) -> Parameters:
        """What the target is asked for."""
        return Parameters(self.temperature, self.top_k, self.top_p, self.min_p)

    @property
    def name(self) -> str:
        """What reports call it.

        >>> Point("2", top_p="0.7", draft="raw").name
        'temperature 2, top_p 0.7; raw draft'
        """
        asked = [f"{name} {getattr(self, name)}" for name in self.parameters.asked()]
        draft = "" if self.draft == "same" else f"; {self.draft} draft"
        return (", ".join(asked) or "temperature 1") + draft

    def fixture(self, shape: Shape) -> Fixture:
        """Return target and draft, each under what is asked of it."""
        asked = replace(self, draft="same")
        of_draft = {"same": asked, "raw": Point(), "greedy": Point("0")}[self.draft]
        return Fixture(self.name, _rows(True, asked), _rows(False, of_draft), shape)


@lru_cache(maxsize=1_000)
def _rows(of_target: bool, point: Point) -> dict[Context, Floats]:
    """Return the float32 laws of a model under what a point asks for, by last token."""
    roots = TARGET if of_target else DRAFT
    model = Process(lambda text: weights(r * r for r in roots[text]), point.parameters)
    return {text: tuple(float(np.float32(float(w))) for w in model(text)) for text in roots}


# Each parameter, with each kind of draft; the last has all four, and each of them counts.
QUICK = (
    Point(draft="greedy"),
    Point(top_k=2),
    Point("1/2", min_p="0.2", draft="raw"),
    Point("2", top_p="0.7"),
    Point("2", 3, "0.7", "0.6"),
)

KINDS: tuple[Draft, ...] = ("same", "raw", "greedy")
EVERY = tuple(
    Point(temperature, top_k, top_p, min_p, draft)
    for temperature, top_k, top_p, min_p, draft in product(
        ("1/2", "1", "2"), (None, 1, 2, 3), ("1", "0.9", "0.7"), ("0", "0.2", "0.6"), KINDS
    )
)


def parameter_fixtures(shape: str, thorough: bool, width: int | None = None) -> list[Fixture]:
    """Return the fixtures under sampling parameters, for chains of two or trees of one level.

    Of points with the same laws the first is taken. Drafts that are raw and long are many: where
    drafts are not filtered, chains have one token, if not `thorough`.

    Args:
        shape: "chain" or "tree".
        thorough: take the whole grid, not only the points that tell most.
        width: of trees, if only one number of siblings will do.
    """
    found: dict[object, Fixture] = {}
    for point in (*QUICK, *EVERY) if thorough else QUICK:
        short = point.draft == "raw" and not thorough
        at: Shape = (1 if short else 2) if shape == "chain" else (width or 2,)
        made = point.fixture(at)
        found.setdefault((*made.p.items(), *made.q.items()), made)
    return list(found.values())
