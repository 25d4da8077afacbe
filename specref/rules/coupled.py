"""Coupled randomness: drafter and target race with the same clocks, and often pick one winner."""

from itertools import pairwise

from specref.choice import Choose
from specref.dist import Law
from specref.draft import Node


def coupled(root: Node, choose: Choose) -> tuple[int, ...]:
    """Keep the draft while target and drafter agree (Daliri et al. 2024, Gumbel coupling).

    At every position each token v has a clock, an exponential E_v, made from a seed that both sides
    know. The drafter picks x = argmin E_v/q(v), which has law q; the target picks y = argmin
    E_v/p(v), which has law p. The round emits y and goes on while y = x. Every emitted token is the
    target's own draw, so there is nothing to prove, as for `match`; and the output is a function of
    the target and the seed, whoever drafts. The shared clocks are worth

        Pr(x = y) = sum_i 1 / sum_j max(p(j)/p(i), q(j)/q(i)),

    which lies between (1 - TV)/(1 + TV) and the 1 - TV of `token`. As a program: the drafts are
    given, so y is drawn from its exact law given x, `target_given_draft`.

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the draw at a node is addressed by its child, at a leaf it is the
            terminal draw.

    Returns:
        The draws of the target, up to the first that is not the draft, or the bonus.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> law(lambda c: coupled(chain([p] * 2, [q] * 2, [2]), c)[:1])
    {(0,): Fraction(47, 102), (2,): Fraction(1, 3), (1,): Fraction(7, 34)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        y = choose(target_given_draft(node.p, node.q, x), at=child)
        out = (*out, y)
        if y != x:
            return out
        node = child
    return (*out, choose(node.p))


def target_given_draft(p: Law, q: Law, x: int) -> Law:
    """Return the law of the target's winner y, given that the drafter's winner is x.

    Call a = min E_v/q(v) and b = min E_v/p(v) the winning times, s = a + b their sum and z = a/s.
    Clock v runs at least max(a q(v), b p(v)) = s max(z q(v), (1-z) p(v)). If x wins for q and
    another token y for p, then E_x = a q(x), E_y = b p(y), and the other clocks are only bounded.
    So the density of (a, b) is q(x) p(y) exp(-s D(z)), where D(z) = sum_v max(z q(v), (1-z) p(v)).
    As da db = s ds dz, integrating over s leaves

        Pr(x, y) = q(x) p(y) * integral of dz / D(z)^2 from z(x) to z(y), z(v) = p(v)/(p(v) + q(v)),

    those z at which a q(x) >= b p(x) and b p(y) >= a q(y); nothing if z(y) <= z(x). If x wins for
    both, then E_x = a q(x) = b p(x), so z = z(x), and Pr(x, x) = q(x) z(x) / D(z(x)), which is the
    formula of the paper. Where p or q is 0, z is 1 or 0 at the token: no special case.

    D is linear between neighbouring z(v), and there the integral is the step in z over the product
    of D at both ends. Hence sort the tokens by z(v) and walk up from x, adding up steps.

    >>> from fractions import Fraction as F
    >>> p, q = (F(1, 2), F(1, 2)), (F(1, 4), F(3, 4))
    >>> target_given_draft(p, q, 0), target_given_draft(p, q, 1)
    ((Fraction(1, 1), Fraction(0, 1)), (Fraction(1, 3), Fraction(2, 3)))

    Args:
        p: target law [V].
        q: draft law [V].
        x: the drafted token.
    """
    tokens = [v for v in range(len(p)) if v == x or p[v] + q[v] > 0]
    z = {v: p[v] / (p[v] + q[v]) for v in tokens}
    order = sorted(tokens, key=z.__getitem__)
    # The term of token v in D is (1 - z) p(v) up to z(v), and z q(v) from there on.
    d = {}
    for at, v in enumerate(order):
        d[v] = z[v] * sum(q[u] for u in order[:at]) + (1 - z[v]) * sum(p[u] for u in order[at:])
    out = [w * 0 for w in p]
    out[x] = z[x] / d[x]
    area = p[x] * 0
    behind = order[order.index(x) :]
    for before, y in pairwise(behind):
        area = area + (z[y] - z[before]) / (d[before] * d[y])
        out[y] = p[y] * area
    return tuple(out)
