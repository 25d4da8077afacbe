"""Laws of the rules that treat the siblings of a node together, and commit before they go on.

At a node such a rule accepts x with a mass a(x), over all drafts, and emits p - a when it accepts
none; below an accepted sibling it begins anew. So `a` by formula is all there is to say, and the
law of a round is one recursion over contexts.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

from specref.dist import Law, Number, rational, top
from specref.draft import Shape, widths_of
from specref.model import Context, Model
from specref.transport import plan

Text: TypeAlias = tuple[int, ...]

Accepted: TypeAlias = Callable[[Law, Law, int], list[Number]]
"""From (p, q, number of siblings) to the mass with which each token is accepted at a node."""


def _law_of(accepted: Accepted) -> Callable[[Model, Model, Shape, Context], dict[Text, Number]]:
    """Return the law of a round of the rule that accepts so at every node."""

    def law(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
        widths = widths_of(shape)
        target = p(context)
        if not widths:
            return {(x,): mass for x, mass in enumerate(target) if mass > 0}
        out: dict[Text, Number] = {}
        for x, mass in enumerate(accepted(target, q(context), widths[0])):
            if mass > 0:
                for text, rest in law(p, q, widths[1:], (*context, x)).items():
                    out[x, *text] = mass * rest
            if target[x] > mass:
                out[(x,)] = target[x] - mass
        return out

    return law


def _k_seq(p: Law, q: Law, k: int) -> list[Number]:
    """K alike tests: (1 - (1 - beta)^K) / beta times the mass of one (SpecTr, K-SEQ)."""
    parts = math.lcm(*range(1, 17))

    def one(rho: Number) -> list[Number]:
        return [min(b, a / rho) for a, b in zip(p, q, strict=True)]

    def fulfils(n: int) -> bool:
        beta = sum(one(rational(n, parts)))
        return bool(1 - (1 - beta) ** k <= rational(n, parts) * beta)

    mass = one(rational(bisect_left(range(k * parts), True, lo=parts, key=fulfils), parts))
    beta = sum(mass)
    return [w * (1 - (1 - beta) ** k) / beta for w in mass] if beta > 0 else mass


def _greedy_multi(p: Law, q: Law, k: int) -> list[Number]:
    """The k - 1 likeliest tokens get all of p, the others min(p, q') (Hu et al. 2025)."""
    taken = [x for x in top(q, k - 1) if q[x] > 0]
    left = 1 - sum(q[x] for x in taken)
    return [
        a if x in taken else min(a, q[x] / left) if left > 0 else a * 0 for x, a in enumerate(p)
    ]


def _spec_hub(p: Law, q: Law, k: int) -> list[Number]:
    """The hub a gets all of p, each i what its two pairs have: q + q q(a)/(1 - q(a)), which is q'.

    So pairs with the hub do what two siblings do in `_greedy_multi`.
    """
    return _greedy_multi(p, q, k)


def _importance(p: Law, q: Law, k: int) -> list[Number]:
    """The larger p/q is at most r with chance q(p/q <= r)^K; it is then tested with its law.

    Among tokens of equal p/q the first is selected, so each of them in proportion to q.
    """
    ratios = sorted({a / b for a, b in zip(p, q, strict=True) if b > 0})
    out = [a * 0 for a in p]
    below: Number = 0
    for ratio in ratios:
        level = [x for x, b in enumerate(q) if b > 0 and p[x] / b == ratio]
        mass = sum(q[x] for x in level)
        selected = (below + mass) ** k - below**k
        for x in level:
            out[x] = min(p[x], selected * q[x] / mass)
        below += mass
    return out


def _transport(p: Law, q: Law, k: int) -> list[Number]:
    """Sum an optimal plan over tuples of independent siblings (SpecTr, section 4).

    Optimal plans differ in which tokens they favour, so the plan is an input here: it is checked,
    not found. It must take no more than there is, and as much as the smallest cut allows.
    """
    mu = {t: math.prod(q[x] for x in t) for t in itertools.product(range(len(q)), repeat=k)}
    pi = plan(mu, p)
    out = [sum((row.get(x, 0) for row in pi.values()), rational(0)) for x in range(len(p))]
    cuts = (
        sum(p[x] for x in inside) + 1 - sum(q[x] for x in inside) ** k
        for size in range(len(p) + 1)
        for inside in itertools.combinations(range(len(p)), size)
    )
    feasible = (
        all(min(row.values()) >= 0 and sum(row.values()) <= mu[t] for t, row in pi.items())
        and all(set(row) <= set(t) for t, row in pi.items())
        and all(a <= b for a, b in zip(out, p, strict=True))
    )
    if not feasible or sum(out) != min(cuts):
        raise ArithmeticError(f"the plan for p = {p}, q = {q}, {k} siblings is not an optimal one")
    return out


k_seq = _law_of(_k_seq)
spec_hub = _law_of(_spec_hub)
greedy_multi = _law_of(_greedy_multi)
importance = _law_of(_importance)
transport = _law_of(_transport)
