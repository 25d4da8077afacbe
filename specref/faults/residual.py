"""The correction after a rejection is drawn from the wrong law."""

from specref.choice import Choose
from specref.dist import Number, normalise, rational
from specref.draft import Node
from specref.faults.frame import (
    deficit,
    outside,
    residual,
    softmax,
    unroll,
    verify_chain,
    verify_tree,
)
from specref.rules.coupled import target_given_draft
from specref.rules.one_shot import acceptance

TINY = rational(1, 2**126)
"""Smallest normal float32, a usual guard against dividing by zero."""


def residual_softmaxed(root: Node, choose: Choose) -> tuple[int, ...]:
    """Treat (p - q)+ as logits: its zeros get weight 1, so large vocabularies turn near uniform."""
    return verify_chain(
        root, choose, correct=lambda nodes, i, x: softmax(deficit(nodes[i].p, nodes[i].q))
    )


def residual_is_target(root: Node, choose: Choose) -> tuple[int, ...]:
    """Correct from p: what accepted drafts have supplied already is supplied again."""
    return verify_chain(root, choose, correct=lambda nodes, i, x: nodes[i].p)


def residual_without_rejected(root: Node, choose: Choose) -> tuple[int, ...]:
    """Correct from p without x: right for a certain draft, wrong for one drawn from q."""
    return verify_chain(root, choose, correct=lambda nodes, i, x: outside(nodes[i].p, (x,)))


def residual_floored(root: Node, choose: Choose) -> tuple[int, ...]:
    """Lift every entry of (p - q)+ to a tiny number: forbidden tokens come out, too rarely to see.

    Where p equals q up to rounding the same floor makes the residual uniform.
    """
    return verify_chain(
        root,
        choose,
        correct=lambda nodes, i, x: normalise(
            max(w, TINY) for w in deficit(nodes[i].p, nodes[i].q)
        ),
    )


def soft_residual_for_certain_draft(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept with p(x), as for a certain draft, but subtract the soft q in the residual."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: nodes[i].p[x],
        correct=lambda nodes, i, x: residual(nodes[i].p, nodes[i].q),
    )


def fresh_draw_after_rejection(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept with p(x), then correct from the whole of p: x gets a second chance it must not have.

    The law is that of `fresh_draw_on_mismatch`.
    """
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: nodes[i].p[x],
        correct=lambda nodes, i, x: nodes[i].p,
    )


def fresh_draw_on_mismatch(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw from p, and draw again when the draft disagrees: the drafted token comes too often.

    Emitting the disagreeing draw itself would be lossless.
    """
    nodes, drafts = unroll(root)
    for i, x in enumerate(drafts):
        if choose(nodes[i].p, at=nodes[i + 1]) != x:
            return (*drafts[:i], choose(nodes[i].p))
    return (*drafts, choose(nodes[-1].p))


def one_shot_corrected_from_residual(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept with p/(M q), as plain rejection sampling does, but correct as `token` does.

    What is accepted has the target's law already, whichever its chance: the rest must have it too.
    """
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: (
            acceptance(nodes[i].p, nodes[i].q, x) if nodes[i].q[x] > 0 else 0
        ),
    )


def fresh_draw_after_coupled_mismatch(root: Node, choose: Choose) -> tuple[int, ...]:
    """Race with the drafter's clocks, and where another token wins, draw afresh from p.

    The winner itself is to be emitted: that another one won is knowledge about it.
    """

    def agrees(node: Node, x: int) -> Number:
        return target_given_draft(node.p, node.q, x)[x] if node.q[x] > 0 else 0

    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: agrees(nodes[i], x),
        correct=lambda nodes, i, x: nodes[i].p,
    )


def draft_law_subtracted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test siblings against p alone, as without a draft law, yet correct from norm((p - q)+)."""
    return verify_tree(
        root,
        choose,
        accept=lambda p, q, x: p[x],
        refuse=lambda p, q, x: (outside(p, (x,)), q),
        last=lambda node, p: residual(node.p, node.q),
    )
