"""Greedy multi-draft: K - 1 siblings are the likeliest tokens, only the last one is drawn."""

from specref.choice import Choose
from specref.dist import excess, normalise, top, without
from specref.draft import Node


def greedy_multi(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify the drawn sibling, then look the correction up among the others (Hu et al. 2025).

    The first K - 1 siblings are the likeliest tokens of q and are no surprise; the last is drawn
    from q', which is q without them, renormalised. So the rule is `token` for that one draft: keep
    it with min(1, p/q'), else the correction comes from norm((p - q')+), lossless as there. Since
    q' is 0 at the likeliest tokens, the residual has all of p there, and a correction that is one
    of them is a sibling as well: it is accepted, and the walk goes on below it. In all the mass
    p(likeliest) + sum of min(p, q') over the others is accepted, the most that any rule can accept
    of these drafts, since the likeliest tokens get all of p and nothing but the drawn sibling can
    be any other token.

    The correction is seen only as far as needed, as in `target_only`: one coin says which of the
    likeliest tokens it is, or none; only then is it drawn from the others.

    Args:
        root: a tree whose siblings were drafted so. Where q has fewer than K tokens there are
            fewer siblings, all of q's tokens, and the last of them is certain.
        choose: the reading; the coin of the drawn sibling is addressed by it, that of the look-up
            by the first sibling.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 4), F(1, 4), F(1, 2))
    >>> root = tree([p] * 3, [q] * 3, [2, 0], [0, 0])
    >>> law(lambda c: greedy_multi(root, c)[:1])
    {(0,): Fraction(1, 1)}
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> law(lambda c: greedy_multi(root, c)[:1])
    {(1,): Fraction(3, 5), (2,): Fraction(2, 5)}

    Raises:
        ValueError: siblings that are not the likeliest tokens of q and another token of q.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        *likeliest, (x, child) = node.children
        tokens = tuple(y for y, _ in likeliest)
        rest = node.q
        for y in tokens:
            rest = without(rest, y)
        if tokens != top(node.q, len(tokens)) or rest[x] == 0:
            raise ValueError(
                f"greedy_multi got the siblings {[*tokens, x]}; it verifies q's {len(tokens)} "
                "likeliest tokens and one draw from the others: draft them with top_and_one"
            )
        if choose.flip(min(1, node.p[x] / rest[x]), at=child):
            out, node = (*out, x), child
            continue
        residual = excess(node.p, rest)
        others = [w * 0 if y in tokens else w for y, w in enumerate(residual)]
        shares = (*(residual[y] for y in tokens), sum(others))
        fell = choose(shares, at=likeliest[0][1]) if likeliest else 0
        if fell == len(tokens):
            return (*out, choose(normalise(others)))
        y, node = likeliest[fell]
        out = (*out, y)
    return (*out, choose(node.p))
