"""Ensemble verification: the token rule for a mixture of target and draft. Lossy for the target."""

from fractions import Fraction

from specref.choice import Choose
from specref.dist import Number, excess, number
from specref.draft import Node


def ensemble(root: Node, choose: Choose, w: Number = Fraction(1, 2)) -> tuple[int, ...]:
    """Verify against r = w p + (1 - w) q instead of p (Fu et al. 2025, Speculative Ensemble).

    At every drafted position this is `token` with r in the place of p, so by the same argument the
    token there, accepted or corrected, is an exact sample of r: for those who want the ensemble
    (the paper's purpose) nothing is lost. For those who asked for p it is a relaxation: the token
    has law r, whose total variation from p is (1 - w) TV(p, q), and a draft is accepted with
    probability 1 - w TV(p, q) instead of 1 - TV(p, q). Tokens that the target excludes come out
    where the draft proposes them. w = 1 is `token`, and w = 0 emits the draft.

    The bonus is the target's own draw: behind the last drafted token the draft model is not asked,
    so there is no r. (The paper holds this draw back, as a proposal that the other model verifies
    in the next round; who draws it from r asks the draft model once more.)

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the coin of a drafted node is addressed by it.
        w: weight of the target, 0 <= w <= 1; a fraction keeps exact laws exact.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> law(lambda c: ensemble(chain([p, p], [q, q], [2]), c)[:1])
    {(2,): Fraction(2, 3), (0,): Fraction(1, 4), (1,): Fraction(1, 12)}

    Raises:
        ValueError: a weight outside 0 <= w <= 1.
    """
    w = number(w, "w")
    if not 0 <= w <= 1:
        raise ValueError(f"w = {w} is outside 0 <= w <= 1; 1 is the target alone, 0 the draft")

    def mixed(node: Node) -> tuple[Number, ...]:
        return tuple(w * a + (1 - w) * b for a, b in zip(node.p, node.q, strict=True))

    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        if not choose.flip(min(1, mixed(node)[x] / node.q[x]), at=child):
            return (*out, choose(excess(mixed(node), node.q)))
        out, node = (*out, x), child
    return (*out, choose(node.p))
