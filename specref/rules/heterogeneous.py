"""Recursive rejection with several draft models: each sibling is held to the law it came from."""

from collections.abc import Callable, Sequence
from typing import Any

from specref.choice import Choose
from specref.dist import Law, excess
from specref.draft import Node, as_is, uniform


def heterogeneous(
    root: Node, choose: Choose, *, laws: Sequence[Callable[[Any], Law]] = (as_is, uniform)
) -> tuple[int, ...]:
    """Try one sibling of each draft model, in a fixed order (Miao et al. 2024, SpecInfer, Alg. 2).

    The argument is that of `rrs_with`: the first sibling takes min(p, q_1) and leaves the target
    wanting (p - q_1)+, which, normalised, is the target of the second; that is tested against q_2.
    Nothing in it needs q_1 = q_2. What it needs is that sibling k did come from the law that it is
    tested against, and that the order does not depend on the tokens: any order fixed in advance
    will do, and so will a random one. On p = (1/2, 3/10, 1/5), q_1 = (1/5, 1/5, 3/5) and uniform
    q_2, sorting the two siblings by p costs TV 2/15, and swapping their laws 4/25.

    A node carries one row q, so the law of the k-th sibling is a function of it, `laws[k](q)`. As
    registered there are two draft models, made of one: q itself, and one that knows only which
    tokens are possible. With k models of your own, let q be whatever they need: here the tuple of
    their k rows, from which `laws` picks, in the rule as in the drafter `one_from_each`.

    Args:
        root: a tree whose k-th siblings were drawn from `laws[k](q)`.
        choose: the reading; the coin of a drafted node is addressed by it.
        laws: from the q of a node to the law of its first sibling, of its second, ...

    >>> from fractions import Fraction as F
    >>> from operator import itemgetter
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, large, small = (F(1, 2), F(1, 2)), (F(1, 4), F(3, 4)), (F(2, 3), F(1, 3))
    >>> root = tree([p] * 3, [(large, small)] * 3, [1, 0], [0, 0])
    >>> two = (itemgetter(0), itemgetter(1))
    >>> law(lambda c: heterogeneous(root, c, laws=two)[:1])
    {(1,): Fraction(2, 3), (0,): Fraction(1, 3)}

    Raises:
        ValueError: a node with more siblings than there are laws.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        if len(node.children) > len(laws):
            raise ValueError(
                f"heterogeneous met {len(node.children)} siblings but has {len(laws)} draft models;"
                " pass one of laws= for each"
            )
        p = node.p
        for (x, child), drafted_from in zip(node.children, laws, strict=False):
            q = drafted_from(node.q)
            if choose.flip(min(1, p[x] / q[x]), at=child):
                out, node = (*out, x), child
                break
            p = excess(p, q)
        else:
            return (*out, choose(p))
    return (*out, choose(node.p))
