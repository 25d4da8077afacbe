"""The law behind the proposals is not the law in the ratio and the residual."""

from collections.abc import Callable
from fractions import Fraction

from specref.choice import Choose
from specref.dist import Law, Number, keep, normalise, rational, top
from specref.draft import Node, Shape, chain, likeliest, with_replacement
from specref.faults.fault import Fault
from specref.faults.frame import (
    chance,
    deduct_and_remove,
    residual,
    unroll,
    verify_chain,
    verify_tree,
)
from specref.model import Context, Model


def soft_q_for_certain_draft(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify a draft that was certain as if it had been drawn from the soft q."""
    return verify_chain(root, choose)


def filtered_draft_raw_q(
    p: Model, q: Model, shape: Shape, choose: Choose, context: Context
) -> Node:
    """Draw from the two likeliest tokens of q but declare the whole q.

    Kept tokens are drawn more often than q says, so their ratios are too high, and the residual
    subtracts mass from tokens that are never proposed.
    """
    return declared(p, q, shape, choose, context, top_two)


def raw_draft_filtered_q(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify drafts of the whole q against its two likeliest tokens; drafts outside are refused."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: chance(nodes[i].p, top_two(nodes[i].q), x),
        correct=lambda nodes, i, x: residual(nodes[i].p, top_two(nodes[i].q)),
    )


def q_at_other_temperature(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify drafts of q, drawn at temperature 1, against q at temperature 1/2 (q squared)."""

    def sharper(law: Law) -> Law:
        return normalise(w * w for w in law)

    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: chance(nodes[i].p, sharper(nodes[i].q), x),
        correct=lambda nodes, i, x: residual(nodes[i].p, sharper(nodes[i].q)),
    )


def unlikely_draft_dropped(
    p: Model, q: Model, shape: Shape, choose: Choose, context: Context
) -> Node:
    """Cut a drawn chain before its first token that is not the argmax of q.

    Whether a draft is submitted then depends on the draft: the argmax is offered, accepted, and
    drawn by the target again where another token was withheld.
    """
    nodes, drafts = unroll(with_replacement(p, q, shape, choose, context))
    agreeing = [top(node.q, 1) == (x,) for node, x in zip(nodes, drafts, strict=False)]
    kept = [*agreeing, False].index(False)
    rows = nodes[: kept + 1]
    return chain([node.p for node in rows], [node.q for node in rows], drafts[:kept])


def draft_rounded(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Draw from q as bfloat16 rounds it, but declare q: about one draw in a thousand differs."""

    def eight_bits(law: Law) -> Law:
        return normalise(significant(w, 8) for w in law)

    return declared(p, q, shape, choose, context, eight_bits)


def draft_ids_unmapped(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Draw from q, and submit each token under the id of the next one that q can draw.

    So it is where a drafter has a vocabulary of its own, and its ids are read as the target's.
    """

    def shifted(law: Law) -> Law:
        possible = [x for x, w in enumerate(law) if w > 0]
        before = dict(zip(possible, [possible[-1], *possible], strict=False))
        return tuple(law[before[x]] if x in before else w for x, w in enumerate(law))

    return declared(p, q, shape, choose, context, shifted)


def declared(
    p: Model,
    q: Model,
    shape: Shape,
    choose: Choose,
    context: Context,
    drawn_from: Callable[[Law], Law],
) -> Node:
    """Return a draft that is drawn from other laws than the q that its nodes declare."""

    def declare(node: Node, text: Context) -> Node:
        below = tuple((x, declare(child, (*text, x))) for x, child in node.children)
        return Node(node.p, q(text), below, node.index)

    root = with_replacement(p, lambda text: drawn_from(q(text)), shape, choose, context)
    return declare(root, tuple(context))


def significant(value: Number, bits: int) -> Number:
    """Return a number rounded to so many significant bits, ties to even."""
    if value == 0:
        return value
    scale, exact = 0, Fraction(int(value.numerator), int(value.denominator))
    while exact >= 1 << bits:
        exact, scale = exact / 2, scale + 1
    while exact < 1 << (bits - 1):
        exact, scale = exact * 2, scale - 1
    return rational(round(exact)) * rational(2) ** scale


def top_siblings_taken_as_drawn_with(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify the likeliest tokens of q as if they had been drawn from it independently."""
    return verify_tree(root, choose)


def top_siblings_taken_as_drawn_without(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify the likeliest tokens of q as if they had been drawn from it without replacement."""
    return verify_tree(root, choose, refuse=deduct_and_remove)


def top_two(law: Law) -> Law:
    """Return the law after a top-2 filter; of equal tokens the lower id stays."""
    return keep(law, top(law, 2))


FAULTS = (
    Fault(
        "argmax_draft", "token", "proposals",
        "The draft is the argmax of q, but ratio and residual use the soft q.",
        "A certain draft has q = 1 at its token; or the draft is drawn from q.",
        draft=likeliest,
        links=("huggingface/transformers#32867", "jaymody/speculative-sampling#3"),
    ),
    Fault(
        "soft_q_for_certain_draft", "one_hot", "proposals",
        "A draft that was certain is verified with the soft q in ratio and residual.",
        "A certain draft is accepted with p(x) and corrected from p without x.",
        verify=soft_q_for_certain_draft,
        links=("huggingface/transformers#32867", "jaymody/speculative-sampling#3"),
    ),
    Fault(
        "filtered_draft_raw_q", "token", "proposals",
        "Drafts come from q after a top-2 filter, but ratio and residual use q before it.",
        "The q that is declared is the q that was drawn from.",
        draft=filtered_draft_raw_q,
        links=(
            "huggingface/transformers#47932", "huggingface/transformers#47961",
            "mlx-node/mlx-node#11",
        ),
    ),
    Fault(
        "raw_draft_filtered_q", "token", "proposals",
        "Drafts come from q, but ratio and residual use q after a top-2 filter (0 there refuses).",
        "The q in ratio and residual is the q that was drawn from.",
        verify=raw_draft_filtered_q,
    ),
    Fault(
        "q_at_other_temperature", "token", "proposals",
        "Drafts come from q, but ratio and residual use q at temperature 1/2.",
        "The q in ratio and residual is the q that was drawn from.",
        verify=q_at_other_temperature,
    ),
    Fault(
        "draft_rounded", "token", "proposals",
        "Drafts come from q as bfloat16 rounds it, but ratio and residual use q itself.",
        "The q in ratio and residual is the q that was drawn from, to the last bit.",
        draft=draft_rounded,
        links=("deepseek-ai/DeepSpec#31",),
    ),
    Fault(
        "draft_ids_unmapped", "token", "proposals",
        "Drafted ids are those of the drafter's own vocabulary, off by one from the target's.",
        "Drafted ids are mapped to the target's before anything reads them.",
        draft=draft_ids_unmapped,
        links=("NVIDIA-NeMo/Automodel#2447", "vllm-project/vllm-ascend#15863"),
    ),
    Fault(
        "unlikely_draft_dropped", "token", "proposals",
        "A drawn chain is cut before its first token that is not the argmax of q.",
        "Whether a draft is submitted does not depend on it or on later ones.",
        draft=unlikely_draft_dropped,
    ),
    Fault(
        "top_siblings_taken_as_drawn_with", "rrs_with", "proposals",
        "The likeliest tokens of q are verified as independent draws from q.",
        "Chosen siblings are verified with p alone, or siblings are drawn from q.",
        verify=top_siblings_taken_as_drawn_with, draft=likeliest,
    ),
    Fault(
        "top_siblings_taken_as_drawn_without", "rrs_without", "proposals",
        "The likeliest tokens of q are verified as draws from q without replacement.",
        "Chosen siblings are verified with p alone, or siblings are drawn from q.",
        verify=top_siblings_taken_as_drawn_without, draft=likeliest,
    ),
)  # fmt: skip
"""The faults of this family."""
