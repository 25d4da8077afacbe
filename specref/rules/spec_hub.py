"""SpecHub: pair every draft with the draft law's likeliest token, and test the pair jointly."""

from specref.choice import Choose
from specref.dist import excess, normalise, top, without
from specref.draft import Node


def spec_hub(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify pairs that contain the hub a = argmax q (Sun et al. 2024, SpecHub, section 4).

    The drafter proposes (i, a) with mass q(i), and (a, i) with mass Q(i) = q(a) q(i) / (1 - q(a)).
    Only pairs with the hub exist, so the best plan from pairs to tokens can be written down: four
    steps, each limited by what the token still wants and what the pairs still have.

    1. (i, a) is emitted as i;  2. (a, i) as i;  3. (a, i) as a;  4. (i, a) as a.

    Steps 1 and 2 leave i short of (p(i) - q(i) - Q(i))+. The hub is never short: pairs and target
    have mass 1 each, so after two steps the pairs still have p(a) and as much as the others are
    short of. That much fails twice and is drawn from what the others want: lossless. Where a token
    is short, all pairs that it is in are emitted as it, so no plan accepts more for this draft law:
    p(a) + sum over i of min(p(i), q(i) + Q(i)). Since q + Q = q / (1 - q(a)), that is also the law
    of the pair, and of the round, when the hub is taken first and i drawn from the others: what
    `greedy_multi` does with two siblings.

    Of a pair, the token that is not the hub is tested first, whichever was drawn first.

    Args:
        root: a tree of such pairs. A single sibling is a draw from q and is verified as by `token`.
        choose: the reading; the coin of a drafted node is addressed by it.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> law(lambda c: spec_hub(root, c)[:1])
    {(2,): Fraction(1, 2), (0,): Fraction(1, 2)}

    Raises:
        ValueError: siblings that are no pair with the hub.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q = node.p, node.q
        if len(node.children) == 1:
            ((x, child),) = node.children
            if not choose.flip(min(1, p[x] / q[x]), at=child):
                return (*out, choose(excess(p, q)))
            out, node = (*out, x), child
            continue
        (hub,) = top(q, 1)
        tokens = [x for x, _ in node.children]
        if len(tokens) != 2 or tokens.count(hub) != 1 or min(q[x] for x in tokens) == 0:
            raise ValueError(
                f"spec_hub got the siblings {tokens}; it verifies pairs of q's likeliest token, "
                f"here {hub}, with another token of q: draft them with hub_pairs"
            )
        second = [w * q[hub] for w in without(q, hub)]  # Q
        wanted = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
        wanted[hub] = 0  # the hub has its turn after the others
        short = [max(w - mass, 0) for w, mass in zip(wanted, second, strict=True)]
        (x, child), (_, hub_child) = sorted(node.children, key=lambda pair: pair[0] == hub)
        is_step_2 = tokens[0] == hub
        chance = wanted[x] / second[x] if is_step_2 else p[x] / q[x]
        if choose.flip(min(1, chance), at=child):
            out, node = (*out, x), child
            continue
        kept = sum(max(mass - w, 0) for w, mass in zip(wanted, second, strict=True))
        if sum(short) == 0:
            chance = 1  # which the divisions below may miss by a rounding
        elif is_step_2:
            chance = p[hub] / kept
        else:
            left = sum(max(q[i] - p[i], 0) for i in range(len(q)) if i != hub)
            chance = max(p[hub] - kept, 0) / left
        if not choose.flip(min(1, chance), at=hub_child):
            return (*out, choose(normalise(short)))
        out, node = (*out, hub), hub_child
    return (*out, choose(node.p))
