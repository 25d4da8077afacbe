"""Drafts are accepted that were not tested, or not with their own chance."""

from specref.choice import Choose
from specref.dist import Law, Number, rational, top
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.frame import chance, residual, unroll, verify_chain

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


def envelope_inverted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept with p/(M q), where M is the largest q/p instead of the largest p/q.

    The correction is from p, as in `one_shot`. M q need not be above p, so the chance is cut at 1,
    and what is accepted has lost the shape of p.
    """

    def capped(p: Law, q: Law, x: int) -> Number:
        height = max(b / a for a, b in zip(p, q, strict=True) if a > 0)
        return chance(p, tuple(height * w for w in q), x)

    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: capped(nodes[i].p, nodes[i].q, x),
        correct=lambda nodes, i, x: nodes[i].p,
    )


def refused_tokens_kept(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the correction of the first refusal, but leave the refused tokens in the text."""
    nodes, drafts = unroll(root)
    for i, x in enumerate(drafts):
        if not choose.flip(chance(nodes[i].p, nodes[i].q, x), at=nodes[i + 1]):
            return (*drafts, choose(residual(nodes[i].p, nodes[i].q)))
    return (*drafts, choose(nodes[-1].p))


def underflow_accepted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test u q <= p in half precision: where q rounds to zero, 0 <= p accepts whatever p is."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: (
            1 if nodes[i].q[x] <= HALF_PRECISION_ZERO else chance(nodes[i].p, nodes[i].q, x)
        ),
    )


FAULTS = (
    Fault(
        "everything_accepted", "token", "acceptance",
        "Every draft is accepted.",
        "A draft is accepted with chance min(1, p(x)/q(x)).",
        verify=everything_accepted,
        links=("huggingface/transformers#28508", "vllm-project/vllm-ascend#13730"),
    ),
    Fault(
        "first_draft_unverified", "token", "acceptance",
        "The first draft is accepted unseen; the others are verified with their own rows.",
        "The first draft is verified like the others.",
        verify=first_draft_unverified,
    ),
    Fault(
        "first_draft_unverified_greedy", "greedy", "acceptance",
        "Draft i + 1 is compared with the argmax of row i, and draft 0 with nothing.",
        "Draft i is compared with the argmax of row i.",
        verify=first_draft_unverified_greedy,
        links=("ohdearquant/lattice#243",),
    ),
    Fault(
        "envelope_inverted", "one_shot", "acceptance",
        "A draft is accepted with min(1, p(x)/(M q(x))), M the largest q/p.",
        "M is the largest p/q, so that M q is nowhere below p.",
        verify=envelope_inverted,
    ),
    Fault(
        "refused_tokens_kept", "token", "acceptance",
        "After a refusal all drafts stay in the text, and the correction is added behind them.",
        "The text ends with the correction, in the place of the refused token.",
        verify=refused_tokens_kept,
        links=("lucidrains/speculative-decoding#3",),
    ),
    Fault(
        "underflow_accepted", "token", "acceptance",
        "A draft with q(x) <= 2^-25 is accepted: in float16 u q(x) <= p(x) reads 0 <= p(x).",
        "Small probabilities keep their ratio, in float32 or in logarithms.",
        verify=underflow_accepted,
        links=("lablup/mlxcel#992",),
    ),
)  # fmt: skip
"""The faults of this family."""
