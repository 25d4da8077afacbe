"""Coins on the edge of their grid, coins that are no coins, and draws that serve twice.

A coin is k * 2^-24, as float32 generators make them; the chances below count its values exactly.
"""

from math import ceil, floor

from specref.choice import Choose
from specref.dist import Law, Number, rational
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.frame import (
    chance,
    deficit,
    outside,
    residual,
    settle,
    unroll,
    verify_by_running_sum,
    verify_chain,
)

GRID = 2**24
"""Number of values of a coin."""


def inclusive(value: Number) -> Number:
    """Return the chance of u <= value for a coin u in {0, ..., 1 - 2^-24}."""
    return min(1, rational(floor(value * GRID) + 1, GRID))


def below_from_one(value: Number) -> Number:
    """Return the chance of u < value for a coin u in {2^-24, ..., 1}."""
    return rational(max(0, ceil(value * GRID) - 1), GRID)


def coin_inclusive(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept iff u <= p/q: the coin 0 accepts a token of target mass 0, once in 2^24."""
    return verify_chain(
        root, choose, accept=lambda nodes, i, x: inclusive(chance(nodes[i].p, nodes[i].q, x))
    )


def coin_inclusive_one_hot(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept iff u <= p(x): the coin 0 accepts a token of target mass 0, once in 2^24."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: inclusive(nodes[i].p[x]),
        correct=lambda nodes, i, x: outside(nodes[i].p, (x,)),
    )


def coin_inclusive_target_only(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take the first sibling with u <= running sum: the coin 0 takes one of target mass 0."""
    return verify_by_running_sum(root, choose, bound=inclusive)


def coin_stuck_at_zero(root: Node, choose: Choose) -> tuple[int, ...]:
    """Use 0 for every coin: whatever the target can produce at all is accepted."""
    return verify_chain(root, choose, accept=lambda nodes, i, x: int(nodes[i].p[x] > 0))


def coin_shared(root: Node, choose: Choose) -> tuple[int, ...]:
    """Compare one coin with the ratios of all positions.

    Drafts survive down to the first ratio that is not above the coin, so position i is reached iff
    the coin is below the least ratio before it. The first token of a round looks right.
    """
    nodes, drafts = unroll(root)
    least: list[Number] = [1]
    for node, x in zip(nodes, drafts, strict=False):
        least.append(min(least[-1], chance(node.p, node.q, x)))
    spans = [high - low for high, low in zip(least, [*least[1:], 0], strict=True)]
    refused = choose(spans[::-1], at=nodes[1] if drafts else None)
    kept = len(drafts) - refused
    here = nodes[kept]
    return (*drafts[:kept], choose(residual(here.p, here.q) if refused else here.p))


def coin_reused(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the correction by inverse CDF from the coin that refused.

    That coin is known to be at or above the ratio c, so of the residual's CDF only the part above c
    is ever hit.
    """
    nodes, drafts = unroll(root)
    for i, x in enumerate(drafts):
        c = chance(nodes[i].p, nodes[i].q, x)
        fell = choose((c, *above(c, residual(nodes[i].p, nodes[i].q))), at=nodes[i + 1])
        if fell:
            return (*drafts[:i], fell - 1)
    return (*drafts, choose(nodes[-1].p))


def above(c: Number, law: Law) -> tuple[Number, ...]:
    """Return the length of each token's piece of the inverse CDF that lies in [c, 1)."""
    lengths = []
    low: Number = 0
    for w in law:
        lengths.append(max(low + w, c) - max(low, c))
        low = low + w
    return tuple(lengths)


def uniform_for_empty_residual(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw coins in (0, 1], so that a ratio of 1 can be refused, and correct uniformly if p = q."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: below_from_one(chance(nodes[i].p, nodes[i].q, x)),
        correct=lambda nodes, i, x: settle(
            deficit(nodes[i].p, nodes[i].q), (rational(1, len(nodes[i].p)),) * len(nodes[i].p)
        ),
    )


def scan_falls_to_last_token(root: Node, choose: Choose) -> tuple[int, ...]:
    """Scan the residual's CDF for a draw that can be 1, which is never below it.

    The scan then ends where it was initialised, at the last token, whatever its mass.
    """

    def scanned(law: Law) -> Law:
        missed = rational(1, GRID)
        return (*(w * (1 - missed) for w in law[:-1]), law[-1] * (1 - missed) + missed)

    return verify_chain(
        root, choose, correct=lambda nodes, i, x: scanned(residual(nodes[i].p, nodes[i].q))
    )


def draft_noise_reused(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the correction by a race whose clocks have already lost the race for the draft.

    Token v has a clock E_v, exponential; the draft was the least E_v / q(v), the correction is the
    least E_v / r(v) with the *same* clocks. A refusal says that x won the first race, hence that
    the clocks of tokens likely under q are long.
    """
    return verify_chain(
        root,
        choose,
        correct=lambda nodes, i, x: second_race(nodes[i].q, residual(nodes[i].p, nodes[i].q)),
    )


def second_race(q: Law, r: Law) -> Law:
    """Return the law of argmin E_v / r(v), given that a token outside r won argmin E_v / q(v).

    With T = min E_v / q(v), an exponential of rate 1 that is independent of who won, the losers
    have E_v = T q(v) + fresh exponential: v joins the second race at time T q(v)/r(v) with rate
    r(v). Nobody has finished at time T t with chance E[exp(-T (R t - Q))] = 1/(1 + R t - Q), where
    R and Q are the sums of r and q over those who have joined; each wins in proportion to r.
    """
    joins = sorted((q[v] / r[v], v) for v in range(len(r)) if r[v] > 0)
    wins: list[Number] = [0] * len(r)
    running: Number = 1
    for last in range(len(joins)):
        joined = [v for _, v in joins[: last + 1]]
        rate = sum(r[v] for v in joined)
        still: Number = 0
        if last + 1 < len(joins):
            still = 1 / (1 + rate * joins[last + 1][0] - sum(q[v] for v in joined))
        for v in joined:
            wins[v] += (running - still) * r[v] / rate
        running = still
    return tuple(wins)


FAULTS = (
    Fault(
        "coin_inclusive", "token", "coins",
        "A draft is accepted iff u <= p(x)/q(x), with coins that can be 0.",
        "A draft is accepted iff u < p(x)/q(x).",
        verify=coin_inclusive,
    ),
    Fault(
        "coin_inclusive_one_hot", "one_hot", "coins",
        "A draft is accepted iff u <= p(x), with coins that can be 0.",
        "A draft is accepted iff u < p(x).",
        verify=coin_inclusive_one_hot,
    ),
    Fault(
        "coin_inclusive_target_only", "target_only", "coins",
        "The first sibling with u <= running sum of p is taken, with coins that can be 0.",
        "The first sibling with u < running sum of p is taken.",
        verify=coin_inclusive_target_only,
        links=("sgl-project/sglang#35771", "sgl-project/sglang#35798"),
    ),
    Fault(
        "coin_stuck_at_zero", "token", "coins",
        "Every coin is 0, so that every draft with p(x) > 0 is accepted.",
        "Coins are uniform.",
        verify=coin_stuck_at_zero,
        links=("vllm-project/vllm-ascend#13730", "vllm-project/vllm-ascend#13766"),
    ),
    Fault(
        "coin_shared", "token", "coins",
        "One coin decides all positions of a round.",
        "Each position has a coin of its own.",
        verify=coin_shared,
    ),
    Fault(
        "coin_reused", "token", "coins",
        "The coin that refused the draft is the inverse-CDF draw of the correction.",
        "The correction has a draw of its own.",
        verify=coin_reused,
    ),
    Fault(
        "uniform_for_empty_residual", "token", "coins",
        "A coin of 1, once in 2^24, refuses a ratio of 1; where p = q the correction is uniform.",
        "Coins stay below 1; an empty residual falls back to p.",
        verify=uniform_for_empty_residual,
        links=("duoan/TorchCode#16",),
    ),
    Fault(
        "scan_falls_to_last_token", "token", "coins",
        "Once in 2^24 the inverse CDF of the residual is overrun and the last token is emitted.",
        "A token of residual mass 0 is never emitted.",
        verify=scan_falls_to_last_token,
        links=("iree-org/iree-turbine#741",),
    ),
    Fault(
        "draft_noise_reused", "token", "coins",
        "The race that drew the draft is run again with the same noise to draw the correction.",
        "The correction has noise of its own.",
        verify=draft_noise_reused,
        links=("vllm-project/vllm#47386", "vllm-project/vllm#54282"),
    ),
)  # fmt: skip
"""The faults of this family."""
