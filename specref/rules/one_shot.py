"""One-shot rejection sampling: accept with p(x)/(M q(x)), else forget the draft and draw anew."""

from specref.choice import Choose
from specref.dist import Law, Number
from specref.draft import Node


def one_shot(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify a chain by plain rejection sampling with one trial (Leviathan et al. 2023, A.2).

    Textbook rejection sampling takes M with p <= M q and accepts x with p(x) / (M q(x)). Then x is
    drawn *and* accepted with mass q(x) p(x) / (M q(x)) = p(x) / M: the accepted token has law p,
    and whether it is accepted does not depend on which token it is. So the refused part may be any
    draw from p, and no residual is needed: lossless. The smallest M is max p/q, and a draft is
    accepted with probability 1/M = min q/p, the minimum over the tokens that p can draw; 0 if q
    cannot draw one of them.

    `token` accepts sum min(p, q) = sum p min(1, q/p) instead, which is never less: there the
    refused part makes up for what the draft cannot give, here it is drawn as if nothing were known.

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the coin of a drafted node is addressed by it.

    Returns:
        The accepted tokens and one more, a draw from p.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> [str(acceptance(p, q, x)) for x in range(3)]
    ['1', '3/5', '2/15']
    >>> law(lambda c: one_shot(chain([p] * 2, [q] * 2, [2]), c)[:1])
    {(2,): Fraction(23, 75), (0,): Fraction(13, 30), (1,): Fraction(13, 50)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        if not choose.flip(acceptance(node.p, node.q, x), at=child):
            return (*out, choose(node.p))
        out, node = (*out, x), child
    return (*out, choose(node.p))


def acceptance(p: Law, q: Law, x: int) -> Number:
    """Return p(x) / (M q(x)) with M = max p/q, the chance of keeping the draft x.

    It is the minimum of (p(x)/q(x)) (q(v)/p(v)) over the tokens v that p can draw. For v = x this
    is 1 in every arithmetic, floats too.
    """
    ratio = p[x] / q[x]
    return min([1, *(ratio * q[v] / p[v] for v in range(len(p)) if v != x and p[v] > 0)])
