"""The exact judge: rounds of a batch as `specref` decides them, on laws that are exact."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from gpu_impl import DraftProbs
from specref import RULES
from specref import Uniforms as Reading
from specref.dist import Law, normalise, rational
from specref.draft import Node
from specref.logits import PRESETS, Enclosure, Parameters, filtered
from tests.gpu_cases import Made

WIDTH = rational(1, 10**40)
"""Irrational masses are enclosed to this, and a law inside is taken: no coin lies as close."""


def law(scores: Any, asked: dict[str, float], preset: str) -> Law:
    """Return the exact law of a row of float64 scores [V] under what is asked."""
    k = int(asked["top_k"])
    given = Parameters(
        temperature=Fraction(asked["temperature"]),
        top_k=k if 0 < k < len(scores) else None,
        top_p=Fraction(asked["top_p"]),
        min_p=Fraction(asked["min_p"]),
    )
    row = [None if s == -math.inf else Fraction(s) for s in scores.tolist()]
    found = filtered(row, given, PRESETS[preset]).law(WIDTH)
    return found.inside() if isinstance(found, Enclosure) else found


def target(made: Made, node: int) -> Law:
    """Return the exact target law behind a node."""
    asked = made.asked(made.parameters, made.request[node : node + 1])
    return law(made.scores[node], {n: v[0] for n, v in asked.items()}, made.parameters.preset)


def draft(made: Made, node: int) -> Law:
    """Return the exact draft law behind a node, over the target's tokens."""
    given, row = made.draft, made.draft_row[node]
    if isinstance(given, DraftProbs):
        found = normalise(rational(x) for x in given.probs[row].double().tolist())
    else:
        asked = made.asked(given.parameters, made.request[node : node + 1])
        scores = given.logits[row].double().numpy()
        found = law(scores, {n: v[0] for n, v in asked.items()}, given.parameters.preset)
    if given.tokens is None:
        return found
    spread = [rational(0)] * made.vocab
    for token, w in zip(given.tokens.tolist(), found, strict=True):
        spread[token] = w
    return tuple(spread)


def decided(made: Made, request: int, coins: Any, terminal: float) -> tuple[int, ...] | None:
    """Return the tokens that a request emits on given draws, or None where `specref` has no answer.

    It has none for rows that are no laws. A draft that cannot have been drafted is left out, with
    what stands behind it.
    """
    nodes = np.flatnonzero(made.request == request)
    lost = made.p.bad[nodes] | made.p.lawless[nodes]
    if made.q is not None:
        lost = lost | made.q.bad[nodes] | made.q.lawless[nodes]
    if lost.any():
        return None
    start = int(nodes[0])
    draws = [Fraction(float(coins[node])) for node in nodes[1:]]
    tokens = made.tokens.tolist()

    def grown(node: int) -> Node | None:
        p = target(made, node)
        below = [int(child) for child in made.kids[node] if child >= 0]
        q = draft(made, node) if made.q is not None and below else p
        kept: list[tuple[int, Node]] = []
        for child in below:
            x = tokens[child]
            if not 0 <= x < made.vocab or (made.q is not None and q[x] == 0):
                continue
            if made.rule == "rrs_without" and x in dict(kept):
                continue
            kept.append((x, grown(child)))
        if below and made.q is None:
            if not kept and made.rule in ("match", "greedy"):
                raise _Unanswered  # a draw of its own, which no child addresses
            if kept:  # their one coin is that of the first draft, one that counts or not
                draws[kept[0][1].index - 1] = Fraction(float(coins[below[0]]))
        return Node(p, q, tuple(kept), node - start)

    try:
        root = grown(start)
        reading = Reading([*draws, Fraction(float(terminal))])
        return tuple(RULES[made.rule].verify(root, reading))
    except (_Unanswered, ZeroDivisionError):
        return None


class _Unanswered(Exception):
    """The reference cannot be asked."""
