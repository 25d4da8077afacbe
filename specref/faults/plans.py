"""Siblings weighed together, by a plan or a selection that does not fit how they were drawn."""

from specref.choice import Choose
from specref.dist import Law, Number, rational, top
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.frame import chance, outside, residual, settle, with_targets
from specref.rules.spec_hub import spec_hub
from specref.transport import carry_out, independent, plan

SURE = rational(999, 1000)
"""Above this mass, SpecHub's code takes a token for certain."""


def divisor_too_small(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test every sibling with p/q, as if rho were 1, and clip the residual where it turns negative.

    All tests together then accept x with more than p(x) where q(x) is small.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q = node.p, node.q
        for x, child in node.children:
            if choose.flip(chance(p, q, x), at=child):
                out, node = (*out, x), child
                break
        else:
            covered = [min(a, b) for a, b in zip(p, q, strict=True)]
            beta = sum(covered)
            tests = sum((1 - beta) ** k for k in range(len(node.children)))
            left = tuple(max(a - tests * b, 0) for a, b in zip(p, covered, strict=True))
            return (*out, choose(settle(left, p)))
    return (*out, choose(node.p))


def selection_held_to_q(root: Node, choose: Choose) -> tuple[int, ...]:
    """Select a sibling in proportion to p/q, then verify it as if it were a plain draw from q.

    What is selected has another law, p_I, which favours the tokens that the target likes.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q = node.p, node.q
        ratios = [p[x] / q[x] if q[x] > 0 else 0 for x, _ in node.children]
        uniform = (rational(1, len(ratios)),) * len(ratios)
        row: dict[int, Number] = {}
        for (x, _), share in zip(node.children, settle(ratios, uniform), strict=True):
            row[x] = row.get(x, 0) + share * chance(p, q, x)
        taken = carry_out(row, node.children, choose)
        if taken is None:
            return (*out, choose(residual(p, q)))
        x, node = taken
        out = (*out, x)
    return (*out, choose(node.p))


def sure_hub_accepted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept the hub of a pair outright where the target gives it more than 0.999."""

    def rounded(node: Node) -> Law:
        (hub,) = top(node.q, 1)
        sure = len(node.children) > 1 and node.p[hub] > SURE
        return outside(node.p, set(range(len(node.p))) - {hub}) if sure else node.p

    return spec_hub(with_targets(root, rounded), choose)


def drawn_sibling_held_to_whole_q(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify the drawn sibling against q, though it was drawn from q without the likeliest tokens.

    The correction is looked up among the siblings, as in `greedy_multi`.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        *likeliest, (x, child) = node.children
        if choose.flip(chance(node.p, node.q, x), at=child):
            out, node = (*out, x), child
            continue
        left = residual(node.p, node.q)
        row = {y: left[y] for y, _ in likeliest}
        taken = carry_out(row, likeliest, choose)
        if taken is None:
            return (*out, choose(outside(left, row)))
        y, node = taken
        out = (*out, y)
    return (*out, choose(node.p))


def planned_correction_is_target(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept by an optimal plan for independent siblings, but correct from the whole of p."""
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        t = tuple(x for x, _ in node.children)
        mu = independent(node.q, len(t))
        given = plan(mu, node.p)[t] if t in mu else {}
        taken = carry_out({x: w / mu[t] for x, w in given.items()}, node.children, choose)
        if taken is None:
            return (*out, choose(node.p))
        x, node = taken
        out = (*out, x)
    return (*out, choose(node.p))


FAULTS = (
    Fault(
        "divisor_too_small", "k_seq", "plans",
        "Siblings are accepted with min(1, p/q), as if rho were 1, and the residual is clipped.",
        "They are accepted with min(1, p/(rho q)), rho large enough for all of them together.",
        verify=divisor_too_small,
    ),
    Fault(
        "selection_held_to_q", "importance", "plans",
        "A sibling is selected in proportion to p/q, and verified as a draw from q.",
        "What is selected is verified with the law of the selected, p_I.",
        verify=selection_held_to_q,
    ),
    Fault(
        "sure_hub_accepted", "spec_hub", "plans",
        "The hub of a pair is accepted where the target gives it more than 0.999.",
        "However likely, it is accepted by the plan.",
        verify=sure_hub_accepted,
    ),
    Fault(
        "drawn_sibling_held_to_whole_q", "greedy_multi", "plans",
        "The drawn sibling is verified against q.",
        "It was drawn from q without the likeliest tokens, renormalised, and is held to that.",
        verify=drawn_sibling_held_to_whole_q,
    ),
    Fault(
        "planned_correction_is_target", "transport", "plans",
        "When no sibling is accepted, the correction is drawn from p.",
        "It is drawn from what the plan leaves of p.",
        verify=planned_correction_is_target,
    ),
)  # fmt: skip
"""The faults of this family."""
