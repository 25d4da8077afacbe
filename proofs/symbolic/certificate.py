"""Certificates that no point fulfils a set of conditions.

Given polynomials known to be >= 0, some of them > 0, a combination with coefficients >= 0 that is
the zero polynomial, with a positive coefficient at one that is > 0, says that there is no such
point: the combination would be > 0 there. A linear program in floats proposes the combination; it
counts only if it is exactly zero in fractions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import fmpq_mat
from scipy.optimize import linprog
from scipy.sparse import coo_array

from proofs.symbolic.symbols import Polynomial, key

Condition = tuple[Polynomial, bool]
"""A polynomial that is >= 0, and whether it is > 0."""

PRODUCTS = 600
"""Products of conditions are formed up to this number."""


def refuted(
    conditions: Sequence[Condition],
    about: Sequence[Condition],
    remembered: dict[Any, bool],
    thorough: bool = False,
) -> bool:
    """Say whether a certificate was found that conditions exclude each other.

    Args:
        conditions: what is known.
        about: what is added to it; conditions that share no symbol with it, directly or through
            others, are left out. With nothing added all are looked at.
        remembered: answers by set of conditions, of one ring.
        thorough: look at more products of conditions; it takes several times as long.

    Returns:
        True is a proof. False says nothing.
    """
    if any(polynomial.is_constant() for polynomial, _ in about):
        raise ValueError("a constant needs no certificate")
    for group in _connected([*about, *conditions]):
        if about and about[0] not in group:
            continue
        name = thorough, frozenset((key(polynomial), strict) for polynomial, strict in group)
        if name not in remembered:
            remembered[name] = _exclude_each_other(group, thorough)
        if remembered[name]:
            return True
    return False


def _exclude_each_other(group: Sequence[Condition], thorough: bool) -> bool:
    """Say whether a certificate was found, of growing degree."""
    degree = max(2, *(polynomial.total_degree() for polynomial, _ in group))
    return (
        _combination(group)
        or _combination([*group, *_products(group, degree)])
        or (degree < 5 and _combination([*group, *_products(group, degree + 1)]))
        or (thorough and _combination([*group, *_triples(group)]))
    )


def _connected(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Return the conditions in groups that share no symbols."""
    groups: list[tuple[set[int], list[Condition]]] = []
    for condition in conditions:
        used = {place for place, degree in enumerate(condition[0].degrees()) if degree}
        joined = [condition]
        apart = []
        for places, members in groups:
            if places & used:
                used, joined = used | places, members + joined
            else:
                apart.append((places, members))
        groups = [*apart, (used, joined)]
    return [members for _, members in groups]


def _products(conditions: Sequence[Condition], degree: int) -> list[Condition]:
    """Return products of two conditions up to a degree; they hold where both do."""
    out: list[Condition] = []
    for at, (p, strict) in enumerate(conditions):
        for q, other in conditions[at:]:
            if p.total_degree() + q.total_degree() <= degree:
                out.append((p * q, strict and other))
    # Strict ones of high degree are the conditions that the search itself has made.
    out.sort(key=lambda condition: (-condition[0].total_degree(), not condition[1]))
    return out[:PRODUCTS]


def _triples(conditions: Sequence[Condition]) -> list[Condition]:
    """Return products of conditions with one and with two linear ones."""
    linear = [condition for condition in conditions if condition[0].total_degree() == 1]
    pairs = [*linear, *_products(linear, 2)]
    return [(p * q, s and t) for q, t in conditions for p, s in pairs][: 3 * PRODUCTS]


def _combination(conditions: Sequence[Condition]) -> bool:
    """Say whether a combination of the conditions themselves is a certificate."""
    ring = conditions[0][0].context()
    columns = [*conditions, (ring.constant(1), True)]
    rows: dict[tuple[int, ...], int] = {}
    entries = [
        (float(int(c.p) / int(c.q)), rows.setdefault(tuple(monomial), len(rows)), at, c)
        for at, (polynomial, _) in enumerate(columns)
        for monomial, c in polynomial.terms()
    ]
    last = len(rows)
    values = [value for value, *_ in entries]
    places = [row for _, row, *_ in entries], [at for _, _, at, _ in entries]
    strict = [at for at, (_, is_strict) in enumerate(columns) if is_strict]
    solved = linprog(
        np.zeros(len(columns)),
        A_eq=coo_array(
            (
                [*values, *(1.0 for _ in strict)],
                ([*places[0], *(last for _ in strict)], [*places[1], *strict]),
            ),
            shape=(last + 1, len(columns)),
        ).tocsc(),
        b_eq=[*(0.0 for _ in rows), 1.0],
        method="highs-ds",
    )
    if solved.status != 0:
        return False
    support = [at for at, weight in enumerate(solved.x) if weight > 1e-9]
    weights = _exactly(support, entries, last, strict)
    if weights is None or min(weights) < 0:
        return False
    total = ring.constant(0)
    for at, w in zip(support, weights, strict=True):
        total += w * columns[at][0]
    positive = sum(w for at, w in zip(support, weights, strict=True) if columns[at][1])
    return bool(total == 0 and positive > 0)


def _exactly(
    support: list[int], entries: list[Any], last: int, strict: list[int]
) -> list[Any] | None:
    """Solve for the coefficients of the columns in `support` in fractions."""
    place = {at: column for column, at in enumerate(support)}
    table = fmpq_mat(last + 1, len(support) + 1)
    for _, row, at, c in entries:
        if at in place:
            table[row, place[at]] = c
    for at in strict:
        if at in place:
            table[last, place[at]] = 1
    table[last, len(support)] = 1
    reduced, rank = table.rref()
    if rank != len(support) or any(reduced[i, i] != 1 for i in range(rank)):
        return None
    return [reduced[i, len(support)] for i in range(rank)]
