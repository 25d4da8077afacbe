"""Sample-and-match: let the target draw, and keep the draft for as long as the two agree."""

from specref.choice import Choose
from specref.draft import Node


def match(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw from the target at every node and walk the draft while the draws are in it.

    Every emitted token is the target's own draw, so the rule is lossless for any draft that does
    not look at these draws; there is nothing to prove. A draft token is kept with probability p(x)
    instead of min(1, p(x)/q(x)), so drawn drafts are accepted less often than by `token`. The draw
    that disagrees must itself be emitted: drawing a fresh one instead is a common fault.

    Used by mlx-lm and llama.cpp, and by Sequoia for greedy trees (Chen et al. 2024).

    Args:
        root: a chain or a tree; of equal siblings the first is followed.
        choose: the reading; the draw at a node is addressed by its first child, at a leaf it is the
            terminal draw.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p = (F(1, 2), F(3, 10), F(1, 5))
    >>> accepted = law(lambda c: len(match(chain([p, p], [p, p], [1]), c)) - 1)
    >>> accepted[1]
    Fraction(3, 10)
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        y = choose(node.p, at=node.children[0][1])
        out = (*out, y)
        drafted = dict(reversed(node.children))
        if y not in drafted:
            return out
        node = drafted[y]
    return (*out, choose(node.p))
