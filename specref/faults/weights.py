"""Rules that weigh whole beginnings or branches, with a wrong weight, coin or residual.

`block` weighs beginnings of a chain, `traversal` branches of a tree. Both test the deepest first.
"""

from specref.choice import Choose
from specref.dist import Number
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.frame import (
    beginnings,
    block_coin,
    missing,
    residual,
    settle,
    unroll,
    verify_block,
    verify_branches,
    weigh,
)


def last_weight_uncapped(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test the whole draft with the plain product of ratios, as HSD's released code does.

    Inner beginnings have their capped weights. Where an early ratio is above 1, the surplus pays
    for later tokens, which the cap forbids.
    """

    def plain(nodes: list[Node], drafts: list[int]) -> list[Number]:
        capped, product = beginnings(nodes, drafts), beginnings(nodes, drafts, cap=False)
        return [*capped[:-1], min(1, product[-1])]

    return verify_block(root, choose, weights=plain)


def weights_uncapped(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take the cumulative product of ratios for all weights, as `cumprod` gives it.

    On two drafts it differs from `last_weight_uncapped` only where an inner weight is above 1: the
    residual is then drawn from (P p - q)+ with P > 1.
    """
    return verify_block(
        root, choose, weights=lambda nodes, drafts: beginnings(nodes, drafts, cap=False)
    )


def block_residual_unscaled(root: Node, choose: Choose) -> tuple[int, ...]:
    """Correct as `token` does, from norm((p - q)+), without the weight of the kept beginning.

    The first token is always right, and with two tokens everything is: a residual then has one.
    """
    return verify_block(root, choose, correct=lambda node, weight: residual(node.p, node.q))


def weight_as_coin(root: Node, choose: Choose) -> tuple[int, ...]:
    """Keep a beginning with its weight as the chance, though longer ones have had theirs."""
    return verify_block(root, choose, coin=lambda node, weight: weight)


def block_stops_at_first_refusal(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test beginnings from the shortest on, and stop at the first that is refused, as `token`.

    The coins belong to the longest beginning that is accepted, whatever shorter ones did.
    """
    nodes, drafts = unroll(root)
    weights = beginnings(nodes, drafts)
    kept = 0
    while kept < len(drafts):
        last = kept + 1 == len(drafts)
        weight = weights[kept + 1]
        coin = min(1, weight) if last else block_coin(nodes[kept + 1], weight)
        if not choose.flip(coin, at=nodes[kept + 1]):
            break
        kept += 1
    here = nodes[kept]
    law = here.p if kept == len(drafts) else settle(missing(here, weights[kept]), here.p)
    return (*drafts[:kept], choose(law))


def block_coin_shared(root: Node, choose: Choose) -> tuple[int, ...]:
    """Compare one coin with the thresholds of all beginnings.

    The longest beginning whose threshold is above the coin is kept: its span is what it has beyond
    the thresholds of all longer ones.
    """
    nodes, drafts = unroll(root)
    weights = beginnings(nodes, drafts)
    spans: list[Number] = []
    reached: Number = 0
    for kept in range(len(drafts), -1, -1):
        coin = (
            min(1, weights[kept]) if kept == len(drafts) else block_coin(nodes[kept], weights[kept])
        )
        highest = max(reached, coin if kept else 1)
        spans.append(highest - reached)
        reached = highest
    kept = len(drafts) - choose(spans, at=nodes[1] if drafts else None)
    here = nodes[kept]
    law = here.p if kept == len(drafts) else settle(missing(here, weights[kept]), here.p)
    return (*drafts[:kept], choose(law))


def branch_weights_stale(root: Node, choose: Choose) -> tuple[int, ...]:
    """Give every branch the weight that it would have as the first, whatever was refused before.

    What the refusals left still is the weight and the target of the node itself.
    """
    return verify_branches(
        root, choose, weight=lambda node, first, r, b, s, x: weigh(first, node.p, node.q, x)
    )


def branch_draft_law_stale(root: Node, choose: Choose) -> tuple[int, ...]:
    """Judge later branches, drawn without replacement, by q as it was for the first."""
    return verify_branches(root, choose, following=lambda s, x: s)


def branch_refusal_undivided(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take what a refusal leaves, S, for the new weight, instead of S / (S + 1 - r).

    The root keeps weight 1: a round ends somewhere.
    """
    return verify_branches(root, choose, left=lambda r, total: total)


FAULTS = (
    Fault(
        "last_weight_uncapped", "block", "weights",
        "The whole draft is accepted with the plain product of its ratios.",
        "The product is cut at 1 after every factor, also before the last.",
        verify=last_weight_uncapped,
    ),
    Fault(
        "weights_uncapped", "block", "weights",
        "All weights are plain products of ratios.",
        "The product is cut at 1 after every factor.",
        verify=weights_uncapped,
    ),
    Fault(
        "block_residual_unscaled", "block", "weights",
        "The correction is drawn from norm((p - q)+).",
        "The correction is drawn from norm((P p - q)+), P the weight of what was kept.",
        verify=block_residual_unscaled,
        links=("vllm-project/vllm-ascend#7807", "vllm-project/vllm-ascend#7808"),
    ),
    Fault(
        "weight_as_coin", "block", "weights",
        "A beginning is kept with chance P, its weight.",
        "It is kept with chance S / (S + 1 - P), S the sum of (P p - q)+, if no longer one is.",
        verify=weight_as_coin,
    ),
    Fault(
        "block_stops_at_first_refusal", "block", "weights",
        "Beginnings are tested from the shortest on, up to the first that is refused.",
        "The longest beginning that is accepted is kept, whatever shorter ones did.",
        verify=block_stops_at_first_refusal,
        links=("vllm-project/vllm-ascend#11985",),
    ),
    Fault(
        "block_coin_shared", "block", "weights",
        "One coin decides about all beginnings of a round.",
        "Each beginning has a coin of its own.",
        verify=block_coin_shared,
    ),
    Fault(
        "branch_weights_stale", "traversal", "weights",
        "Every branch gets the weight that it would have as the first below its node.",
        "Weight, target and draft law of a node move with every refused branch.",
        verify=branch_weights_stale,
    ),
    Fault(
        "branch_draft_law_stale", "traversal", "weights",
        "Branches drawn without replacement are all judged by the same q.",
        "After each refusal q loses the refused token and is renormalised.",
        verify=branch_draft_law_stale,
    ),
    Fault(
        "branch_refusal_undivided", "traversal", "weights",
        "After a refusal a node's weight is S, the sum of (r b - s)+.",
        "It is S / (S + 1 - r).",
        verify=branch_refusal_undivided,
    ),
)  # fmt: skip
"""The faults of this family."""
