"""Traversal verification: a tree is tried from its leaves up, and no refusal is wasted."""

from collections.abc import Callable

from specref.choice import Choose
from specref.dist import Law, Number, normalise, without
from specref.draft import Node


def traversal(
    root: Node, choose: Choose, *, following: Callable[[Law, int], Law] = without
) -> tuple[int, ...]:
    """Try whole branches before their beginnings (Weng et al. 2025, Traversal Verification).

    Top-down rules such as `rrs_without` decide on a token before they look below it. Here the first
    leaf is tested first, as a whole branch; if it is refused it is deleted, then its next sibling's
    branch is tested, and a node whose children are all gone is a leaf itself. The deepest accepted
    node ends the round. On a chain this is block verification.

    Every node carries a weight r and a target b, at first b = p. *A node of weight r must be
    accepted with probability r, and its text then continue with law b*; the root has weight 1, so
    it continues with p whatever happens. Say the next child was drawn from s. Giving it the weight
    min(1, r b(x) / s(x)) covers min(s, r b) of the r b that is wanted, and leaves w = (r b - s)+ to
    what comes after a refusal. With S = sum(w), refusals have probability S + 1 - r. So given a
    refusal the node goes on with weight S / (S + 1 - r) and target w / S, towards its next child,
    or as a leaf.

    Children are visited in the order drawn, and s is always the law of the next one given those
    before it: here q without them. The update is of r, b and s together. On p = (1/2, 3/10, 1/5),
    q = (1/5, 1/5, 3/5) and two levels of two, weighing later children by the first r, b and s costs
    TV 129/500, by the first s alone 11/100, and S in place of S / (S + 1 - r) 22461/500000.

    Args:
        root: a tree whose siblings were drawn from q without replacement.
        choose: the reading; the coin of a drafted node decides whether that node is accepted when
            it is tested as a leaf.
        following: from s and the token drawn from it to the law of the next sibling.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> root = tree([p] * 4, [q] * 4, [2, 1, 0], [0, 0, 1])
    >>> for accepted, mass in sorted(law(lambda c: traversal(root, c)[:-1]).items()):
    ...     print(accepted, mass)
    () 1/12
    (1,) 1/12
    (2, 0) 5/6
    """
    return _visit(root, 1, choose, following, is_root=True)


def _visit(
    node: Node,
    r: Number,
    choose: Choose,
    following: Callable[[Law, int], Law],
    is_root: bool = False,
) -> tuple[int, ...]:
    """Return what is emitted below a node of weight r, nothing if the node is refused."""
    b, s = node.p, node.q
    for x, child in node.children:
        below = _visit(child, min(1, r * b[x] / s[x]), choose, following)
        if below:
            return (x, *below)
        r, b = _refused(r, b, s)
        s = following(s, x)
    return (choose(b),) if is_root or choose.flip(r, at=node) else ()


def _refused(r: Number, b: Law, s: Law) -> tuple[Number, Law]:
    """Return weight and target of a node after the refusal of a child that was drawn from s."""
    wanted = tuple(max(r * x - y, 0) for x, y in zip(b, s, strict=True))
    total = sum(wanted)
    if r < 1:  # a weight of 1 stays 1: S / S
        r = total / (total + (1 - r))
    return r, normalise(wanted) if total > 0 else b  # of weight 0, a node needs no target
