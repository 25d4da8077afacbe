"""Importance sampling: select one of the siblings, then verify it with the law of the selected."""

from collections.abc import Callable
from typing import TypeAlias

from specref.choice import Choose
from specref.dist import Law, Number, is_exact, normalise
from specref.draft import Node
from specref.transport import carry_out, independent

Select: TypeAlias = Callable[[Law, Law, tuple[int, ...]], dict[int, Number]]
"""From (p, q, siblings) to the law of the selected token, one mass per distinct sibling."""


def larger_ratio(p: Law, q: Law, siblings: tuple[int, ...]) -> dict[int, Number]:
    """Select the sibling with the largest p/q; of equal ones the first.

    >>> larger_ratio((3, 1), (2, 2), (1, 0, 1))
    {1: 0, 0: 1}
    """
    members = dict.fromkeys(siblings)
    best = max(members, key=lambda x: p[x] / q[x])
    return {x: int(x == best) for x in members}


def by_ratio(p: Law, q: Law, siblings: tuple[int, ...]) -> dict[int, Number]:
    """Select a sibling in proportion to p/q, a repeated one as often; any, if p is 0 at all.

    >>> from fractions import Fraction as F
    >>> by_ratio((F(3, 4), F(1, 4)), (F(1, 2), F(1, 2)), (1, 0, 1))
    {1: Fraction(2, 5), 0: Fraction(3, 5)}
    """
    weights = [p[x] / q[x] for x in siblings]
    if sum(weights) == 0:
        return {x: int(x == siblings[0]) for x in dict.fromkeys(siblings)}
    chosen: dict[int, Number] = {}
    for x, chance in zip(siblings, normalise(weights), strict=True):
        chosen[x] = chosen.get(x, 0) + chance
    return chosen


def importance(root: Node, choose: Choose, *, select: Select = larger_ratio) -> tuple[int, ...]:
    """Select one of K independent siblings and verify it by `token` (Khisti et al. 2025).

    Selecting makes one draft of many. Over all tuples of siblings the selected token has a law p_I,
    which is found by enumerating the tuples, and a single draft from p_I is verified as ever: keep
    it with min(1, p/p_I), else correct from norm((p - p_I)+). That is lossless for every selection
    rule, as long as p_I is the law of what it selects; with q in its place it is not. The selection
    only decides how close p_I comes to p. A best one accepts as much as any rule can: a plan of
    `transport` is a selection. `larger_ratio` is best here and there (in the example below it is),
    not in general.

    One coin per sibling: the selection and its test are one decision, which takes the sibling x
    with select(x) min(1, p(x)/p_I(x)), given that those before it were not taken. A correction that
    happens to be a sibling ends the round like any other. All V^K tuples are enumerated, so this is
    for small V and K.

    Args:
        root: a tree whose siblings were drawn from q independently; of equal ones the first is
            followed.
        choose: the reading; the coin of a drafted node is addressed by it.
        select: the selection rule.

    Raises:
        ValueError: a selection that is no law over the siblings.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> print(*selected(p, q, 2, larger_ratio))
    11/36 4/9 1/4
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> law(lambda c: importance(root, c)[:1])
    {(1,): Fraction(3, 4), (0,): Fraction(1, 4)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q = node.p, node.q
        single = selected(p, q, len(node.children), select)
        residual = [max(a - b, 0) for a, b in zip(p, single, strict=True)]
        row = _selection(p, q, tuple(x for x, _ in node.children), select)
        if sum(residual) > 0:  # otherwise p_I = p: the tests are certain, but for rounding
            row = {x: chance * min(1, p[x] / single[x]) for x, chance in row.items() if chance > 0}
        taken = carry_out(row, node.children, choose)
        if taken is None:
            return (*out, choose(normalise(residual)))
        x, node = taken
        out = (*out, x)
    return (*out, choose(node.p))


def selected(p: Law, q: Law, k: int, select: Select) -> Law:
    """Return p_I, the law of the token that is selected from `k` independent draws from q."""
    total = [w * 0 for w in q]
    for siblings, mass in independent(q, k).items():
        for x, chance in _selection(p, q, siblings, select).items():
            total[x] = total[x] + mass * chance
    return tuple(total)


def _selection(p: Law, q: Law, siblings: tuple[int, ...], select: Select) -> dict[int, Number]:
    """Return the law of the selected sibling; one that is none would change the output's law."""
    row = select(p, q, siblings)
    total = sum(row.values())
    if not set(row) <= set(siblings) or (is_exact(total) and total != 1) or min(row.values()) < 0:
        raise ValueError(
            f"select= gave {row} for the siblings {list(siblings)}; return a law over them"
        )
    return row
