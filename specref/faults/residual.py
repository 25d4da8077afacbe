"""The correction after a rejection is drawn from the wrong law."""

from specref.choice import Choose
from specref.dist import Number, normalise, rational
from specref.draft import Node
from specref.faults.fault import Fault
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


FAULTS = (
    Fault(
        "residual_softmaxed", "token", "residual",
        "The correction is drawn from the softmax of (p - q)+.",
        "(p - q)+ is divided by its sum.",
        verify=residual_softmaxed,
        links=("huggingface/transformers#28508",),
    ),
    Fault(
        "residual_is_target", "token", "residual",
        "The correction is drawn from p.",
        "The correction is drawn from norm((p - q)+).",
        verify=residual_is_target,
    ),
    Fault(
        "residual_without_rejected", "token", "residual",
        "The correction is drawn from p with the refused token removed.",
        "The draft was drawn from q, so the correction is drawn from norm((p - q)+).",
        verify=residual_without_rejected,
    ),
    Fault(
        "residual_floored", "token", "residual",
        "Every entry of (p - q)+ is raised to at least 2^-126 before it is normalised.",
        "Entries with p <= q stay exactly 0.",
        verify=residual_floored,
        links=("vllm-project/vllm#2336",),
    ),
    Fault(
        "soft_residual_for_certain_draft", "one_hot", "residual",
        "x is accepted with p(x), but the correction is drawn from norm((p - q)+) with the soft q.",
        "A draft accepted with p(x) has q = 1 at x, so the correction is drawn from p without x.",
        verify=soft_residual_for_certain_draft,
    ),
    Fault(
        "fresh_draw_after_rejection", "one_hot", "residual",
        "After a refusal the correction is drawn from the whole of p.",
        "The correction is drawn from p without the refused token.",
        verify=fresh_draw_after_rejection,
    ),
    Fault(
        "fresh_draw_on_mismatch", "match", "residual",
        "When the target's draw differs from the draft, another draw from p is emitted.",
        "The target's draw that differs is emitted itself.",
        verify=fresh_draw_on_mismatch,
    ),
    Fault(
        "one_shot_corrected_from_residual", "one_shot", "residual",
        "A draft is accepted with p(x)/(M q(x)), and the correction is drawn from norm((p - q)+).",
        "What is accepted has law p, so the correction is drawn from p.",
        verify=one_shot_corrected_from_residual,
    ),
    Fault(
        "fresh_draw_after_coupled_mismatch", "coupled", "residual",
        "When another token wins the target's race, a fresh draw from p is emitted.",
        "The winner of the target's race is emitted.",
        verify=fresh_draw_after_coupled_mismatch,
    ),
    Fault(
        "draft_law_subtracted", "target_only", "residual",
        "After all siblings are refused the draw is from norm((p - q)+).",
        "The draw is from p with the tried siblings removed.",
        verify=draft_law_subtracted,
        links=("NVIDIA/TensorRT-LLM#15098",),
    ),
)  # fmt: skip
"""The faults of this family."""
