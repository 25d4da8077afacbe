"""Greedy verification: temperature 0, keep the draft while it is the target's likeliest token."""

from specref.choice import Choose
from specref.dist import top
from specref.draft import Node


def greedy(root: Node, choose: Choose) -> tuple[int, ...]:
    """Keep the longest prefix of argmax tokens and add one (Stern et al. 2018, section 3).

    At temperature 0 the target puts mass 1 on one token, and every lossless rule becomes this one:
    min(1, p/q) is 1 at that token and 0 elsewhere, and the residual is the token itself. On such
    targets it is lossless for any draft. On any other target it emits the argmax and is not.

    Ties go to the lowest token id, here and in `dist.top`.

    Args:
        root: a chain or a tree; of equal siblings the first is followed.
        choose: unused; the rule draws nothing.

    >>> from specref.draft import chain
    >>> greedy(chain([(0, 1), (1, 0), (0, 1)], [None] * 3, [1, 1]), None)
    (1, 0)
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        (y,) = top(node.p, 1)
        out = (*out, y)
        drafted = dict(reversed(node.children))
        if y not in drafted:
            return out
        node = drafted[y]
    return out + top(node.p, 1)
