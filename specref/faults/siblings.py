"""Several drafts at one position: a refusal updates too little, or order and number are changed."""

from specref.choice import Choose
from specref.dist import Law, without
from specref.draft import Node, as_is, uniform, with_replacement
from specref.faults.fault import Fault
from specref.faults.frame import (
    Siblings,
    deduct_and_remove,
    deficit,
    distinct,
    outside,
    residual,
    settle,
    verify_by_running_sum,
    verify_from_each,
    verify_tree,
)


def siblings_share_p(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test every sibling against the untouched p; only the correction uses the residual.

    Each sibling may then be accepted with all of min(p, q), though the first has had its share.
    """
    return verify_tree(
        root,
        choose,
        refuse=lambda p, q, x: (p, q),
        last=lambda node, p: residual(node.p, node.q),
    )


def p_unnormalised_with(root: Node, choose: Choose) -> tuple[int, ...]:
    """Replace p by (p - q)+ without dividing by its sum; the correction is normalised.

    Later siblings are accepted too rarely.
    """
    return verify_tree(
        root,
        choose,
        refuse=lambda p, q, x: (deficit(p, q), q),
        last=lambda node, p: settle(p, node.p),
    )


def p_unnormalised_without(root: Node, choose: Choose) -> tuple[int, ...]:
    """Replace p by (p - q)+ without dividing by its sum, while q is renormalised as it should."""
    return verify_tree(
        root,
        choose,
        refuse=lambda p, q, x: (deficit(p, q), without(q, x)),
        last=lambda node, p: settle(p, node.p),
    )


def q_unchanged_without(root: Node, choose: Choose) -> tuple[int, ...]:
    """Judge siblings drawn without replacement by the same q: later ones were likelier than that.

    Zeroing x in q without renormalising has the same law.
    """
    return verify_tree(root, choose)


def siblings_merged(root: Node, choose: Choose) -> tuple[int, ...]:
    """Test equal siblings once, though the refusal of the second must update the residual too."""
    return verify_tree(root, choose, order=distinct)


def sorted_by_p_with(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try the sibling that the target likes best first: in that order they are no draws from q."""
    return verify_tree(root, choose, order=likeliest_under_p)


def sorted_by_q_with(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try the sibling that the draft likes best first: in that order they are no draws from q."""
    return verify_tree(root, choose, order=likeliest_under_q)


def sorted_by_p_without(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try the sibling that the target likes best first: q without it is not how the next came."""
    return verify_tree(root, choose, order=likeliest_under_p, refuse=deduct_and_remove)


def sorted_by_q_without(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try the sibling that the draft likes best first: q without it is not how the next came."""
    return verify_tree(root, choose, order=likeliest_under_q, refuse=deduct_and_remove)


def draft_models_swapped(root: Node, choose: Choose) -> tuple[int, ...]:
    """Hold each of two siblings to the law of the draft model that the other came from."""
    return verify_from_each(root, choose, laws=(uniform, as_is))


def draft_models_sorted_by_p(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try the sibling that the target likes best first, each against its own draft model.

    An order that depends on the tokens tells about them: they are no draws from these laws then.
    """
    return verify_from_each(root, choose, order=lambda node, siblings: likeliest_under_p(node))


def zeroed_unnormalised(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept a later sibling with p(x) instead of its share of what the tried ones left.

    The correction is normalised.
    """

    def zero(p: Law, q: Law, x: int) -> tuple[Law, Law]:
        return tuple(w * 0 if y == x else w for y, w in enumerate(p)), q

    return verify_tree(
        root,
        choose,
        accept=lambda p, q, x: p[x],
        refuse=zero,
        last=lambda node, p: settle(p, node.p),
    )


def duplicates_counted_twice(root: Node, choose: Choose) -> tuple[int, ...]:
    """Add p(x) to the running sum once per copy of x; the sum is capped at 1."""
    return verify_by_running_sum(
        root, choose, siblings=lambda node: node.children, bound=lambda total: min(1, total)
    )


def fresh_coin_per_sibling(root: Node, choose: Choose) -> tuple[int, ...]:
    """Compare each sibling's own coin with the running sum, which is meant for one coin."""
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        total = 0
        for x, child in distinct(node):
            total += node.p[x]
            if choose.flip(total, at=child):
                out, node = (*out, x), child
                break
        else:
            return (*out, choose(outside(node.p, (x for x, _ in node.children))))
    return (*out, choose(node.p))


def own_target_draw_per_sibling(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw from p for every sibling apart, and keep the first that agrees with its own draw.

    Each sibling gets a fresh chance p(x). When none agrees, the draw made for the first is emitted.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        draws = []
        for x, child in node.children:
            draws.append(choose(node.p, at=child))
            if draws[-1] == x:
                out, node = (*out, x), child
                break
        else:
            return (*out, draws[0])
    return (*out, choose(node.p))


def likeliest_under_p(node: Node) -> Siblings:
    """Return the siblings by falling p; equal ones in the order drawn."""
    return sorted(node.children, key=lambda pair: -node.p[pair[0]])


def likeliest_under_q(node: Node) -> Siblings:
    """Return the siblings by falling q; equal ones in the order drawn."""
    return sorted(node.children, key=lambda pair: -node.q[pair[0]])


FAULTS = (
    Fault(
        "siblings_share_p", "rrs_with", "siblings",
        "Every sibling is tested with the same p; the correction is drawn from norm((p - q)+).",
        "After each refusal p becomes its residual.",
        verify=siblings_share_p,
    ),
    Fault(
        "p_unnormalised_with", "rrs_with", "siblings",
        "After a refusal p becomes (p - q)+, not divided by its sum until the correction.",
        "After each refusal p becomes norm((p - q)+).",
        verify=p_unnormalised_with,
    ),
    Fault(
        "p_unnormalised_without", "rrs_without", "siblings",
        "After a refusal p becomes (p - q)+, not divided by its sum until the correction.",
        "After each refusal p becomes norm((p - q)+).",
        verify=p_unnormalised_without,
    ),
    Fault(
        "q_unchanged_without", "rrs_without", "siblings",
        "Siblings drawn without replacement are all judged by the same q.",
        "After each refusal q loses the refused token and is renormalised.",
        verify=q_unchanged_without,
    ),
    Fault(
        "siblings_merged", "rrs_with", "siblings",
        "Equal siblings are tested once.",
        "Each independent draw is tested, repeats too: their refusal changes the residual.",
        verify=siblings_merged,
    ),
    Fault(
        "sorted_by_p_with", "rrs_with", "siblings",
        "Independent siblings are tried by falling p.",
        "Siblings are tried in the order drawn.",
        verify=sorted_by_p_with,
    ),
    Fault(
        "sorted_by_q_with", "rrs_with", "siblings",
        "Independent siblings are tried by falling q.",
        "Siblings are tried in the order drawn.",
        verify=sorted_by_q_with,
    ),
    Fault(
        "sorted_by_p_without", "rrs_without", "siblings",
        "Siblings drawn without replacement are tried by falling p.",
        "Siblings are tried in the order drawn.",
        verify=sorted_by_p_without,
    ),
    Fault(
        "sorted_by_q_without", "rrs_without", "siblings",
        "Siblings drawn without replacement are tried by falling q.",
        "Siblings are tried in the order drawn.",
        verify=sorted_by_q_without,
    ),
    Fault(
        "draft_models_swapped", "heterogeneous", "siblings",
        "Each of two siblings is held to the law of the draft model that the other came from.",
        "A sibling is held to the law that it was drawn from.",
        verify=draft_models_swapped,
    ),
    Fault(
        "draft_models_sorted_by_p", "heterogeneous", "siblings",
        "Siblings of two draft models are tried by falling p, each against its own law.",
        "Siblings are tried in an order that does not depend on their tokens.",
        verify=draft_models_sorted_by_p,
    ),
    Fault(
        "zeroed_unnormalised", "target_only", "siblings",
        "A later sibling is accepted with p(x), not divided by what the tried ones left.",
        "After each refusal p loses the refused token and is renormalised.",
        verify=zeroed_unnormalised,
    ),
    Fault(
        "duplicates_counted_twice", "target_only", "siblings",
        "The running sum of p counts every copy of an equal sibling.",
        "An equal sibling counts once.",
        verify=duplicates_counted_twice, draft=with_replacement,
    ),
    Fault(
        "fresh_coin_per_sibling", "target_only", "siblings",
        "Each sibling draws a coin of its own and compares it with the running sum of p.",
        "One coin per node is compared with the running sum.",
        verify=fresh_coin_per_sibling,
    ),
    Fault(
        "own_target_draw_per_sibling", "target_only", "siblings",
        "Each sibling is compared with its own draw from p; if none agrees, the first is emitted.",
        "One draw from p per node is compared with all siblings.",
        verify=own_target_draw_per_sibling,
        links=("foundation-model-stack/fms-extras#12",),
    ),
)  # fmt: skip
"""The faults of this family."""
