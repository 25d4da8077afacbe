"""A law over V tokens as a row of numbers and a few scalars: nothing of size V is ever rewritten.

Temperature, top-k, top-p, min-p and greedy all keep a beginning of the order by logit, up to ties.
So the law that a row x [V] and its parameters make is told by six scalars,

    kept(v) = x[v] > cut  or  (x[v] == cut and low <= v <= high)
    mass(v) = exp((x[v] - top) * scale) / total   if kept(v), else 0,

and p(v) is one gather. A greedy row keeps the one token best, so its mass is 1. A row of
probabilities (`DraftProbs`) has mass(v) = x[v] / total and keeps every token of x > 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from gpu_impl.parameters import Parameters

PLAIN = Parameters()
"""Softmax."""


class Laws(NamedTuple):
    """Scalars of n rows.

    Attributes:
        top: float32 [n], the largest logit (with bias, under the mask).
        scale: float32 [n], 1 / temperature; 1 for greedy rows.
        cut: float32 [n], the smallest logit that is kept.
        low, high: int32 [n], tokens between these are kept where the logit equals the cut.
        total: float64 [n], sum of exp((x - top) * scale) over the kept tokens.
        best: int32 [n], the likeliest token, the lowest of equal ones; -1 if no entry is finite.
        bad: bool [n], whether the row is no law: a NaN, a +inf, nothing above -inf.
        lawless: bool [n], whether its sampling parameters are none.
    """

    top: Any
    scale: Any
    cut: Any
    low: Any
    high: Any
    total: Any
    best: Any
    bad: Any
    lawless: Any

    @staticmethod
    def of_chains(parts: Sequence["Laws"]) -> "Laws":
        """Return the scalars of B chains, request by request.

        Args:
            parts: those of the first draft of each chain [B], of the second, and so on.
        """
        return Laws(*(torch.stack(part, 1).flatten() for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class DraftLogits:
    """Draft laws as logits: q is what `parameters` make of the rows that the drafts came from.

    Attributes:
        logits: float32, bfloat16 or float16 [rows, V']; the last stride is 1.
        parameters: those that the drafts were drawn under.
        row: int64 [R], the row of each node that has children; None if node n has row n
            (rows == R), or, for chains, if the last node of each has none (rows == R - B).
        laws: the scalars of the rows, if the drafter kept them (`draft` does); their rows are not
            read again then, except at a refusal.
        tokens: int64 [V'], the target's token of each draft token, for a smaller draft vocabulary;
            no token twice.
    """

    logits: Any
    parameters: Parameters = PLAIN
    row: Any = None
    laws: Laws | None = None
    tokens: Any = None


@dataclass(frozen=True)
class DraftProbs:
    """Draft laws as probabilities [rows, V']; each row counts divided by its sum.

    Attributes:
        probs: float32, bfloat16 or float16 [rows, V'].
        row, tokens: as in `DraftLogits`.
    """

    probs: Any
    row: Any = None
    tokens: Any = None


@dataclass(frozen=True)
class OneHot:
    """Drafts that are certain: n-gram, prompt lookup, the likeliest tokens of a draft model."""
