"""Drafts are accepted that were not tested, or not with their own chance."""

from specref.choice import Choose
from specref.dist import rational, top
from specref.draft import Node
from specref.faults.frame import chance, unroll, verify_chain

HALF_PRECISION_ZERO = rational(1, 2**25)
"""Largest probability that float16 rounds to zero."""


def everything_accepted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Keep every draft: only the bonus is the target's. Tests with sure drafts pass."""
    return verify_chain(root, choose, accept=lambda nodes, i, x: 1)


def first_draft_unverified(root: Node, choose: Choose) -> tuple[int, ...]:
    """Start the test at the second draft, each against its own rows: the first is always kept."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: chance(nodes[i].p, nodes[i].q, x) if i else 1,
    )


def first_draft_unverified_greedy(root: Node, choose: Choose) -> tuple[int, ...]:
    """Compare draft i + 1 with the argmax of row i, and draft 0 with nothing.

    A draft of length one is always taken; longer ones are held to the row before theirs, and so is
    the token that replaces them.
    """
    nodes, drafts = unroll(root)
    for i, x in enumerate(drafts[1:]):
        (y,) = top(nodes[i].p, 1)
        if x != y:
            return (*drafts[: i + 1], y)
    return (*drafts, *top(nodes[-1].p, 1))


def underflow_accepted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test u q <= p in half precision: where q rounds to zero, 0 <= p accepts whatever p is."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: (
            1 if nodes[i].q[x] <= HALF_PRECISION_ZERO else chance(nodes[i].p, nodes[i].q, x)
        ),
    )
