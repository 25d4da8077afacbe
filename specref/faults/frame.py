"""The loops of the honest rules with their parts exchangeable: a fault says only what it changes.

Honest rules never divide by zero, because they meet q(x) = 0 or an empty residual with chance 0.
Faults do meet them. Two conventions keep every fault a proper program on any laws: a draft with
q(x) = 0 is refused, and an empty residual falls back to p.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, pairwise
from typing import TypeAlias

from specref.choice import Choose
from specref.dist import Law, Number, approximate_exp, normalise, without
from specref.draft import Node, as_is, uniform

Siblings: TypeAlias = Sequence[tuple[int, Node]]


def chance(p: Law, q: Law, x: int) -> Number:
    """Return min(1, p(x)/q(x)); 0 where q(x) = 0."""
    return min(1, p[x] / q[x]) if q[x] > 0 else 0


def deficit(p: Law, q: Law) -> tuple[Number, ...]:
    """Return (p - q)+, not normalised."""
    return tuple(max(a - b, 0) for a, b in zip(p, q, strict=True))


def settle(weights: Sequence[Number], instead: Law) -> Law:
    """Return `weights` normalised, or the law `instead` where they are all zero."""
    return normalise(weights) if sum(weights) > 0 else instead


def residual(p: Law, q: Law) -> Law:
    """Return norm((p - q)+); p where that is empty."""
    return settle(deficit(p, q), p)


def outside(p: Law, tokens: Iterable[int]) -> Law:
    """Return p without `tokens`, renormalised; p where nothing is left."""
    gone = set(tokens)
    return settle(tuple(w * 0 if x in gone else w for x, w in enumerate(p)), p)


def softmax(weights: Sequence[Number]) -> Law:
    """Return the softmax of `weights`, each exponential pinned to 53 bits."""
    return normalise(approximate_exp(w) for w in weights)


def unroll(root: Node) -> tuple[list[Node], list[int]]:
    """Return the nodes of a chain, root first, and the tokens between them."""
    nodes, drafts = [root], []
    while nodes[-1].children:
        ((x, child),) = nodes[-1].children
        nodes.append(child)
        drafts.append(x)
    return nodes, drafts


def verify_chain(
    root: Node,
    choose: Choose,
    *,
    accept: Callable[[Sequence[Node], int, int], Number] = lambda nodes, i, x: chance(
        nodes[i].p, nodes[i].q, x
    ),
    correct: Callable[[Sequence[Node], int, int], Law] = lambda nodes, i, x: residual(
        nodes[i].p, nodes[i].q
    ),
    bonus: Callable[[Sequence[Node]], Law] = lambda nodes: nodes[-1].p,
) -> tuple[int, ...]:
    """Verify a chain as `token` does, with parts exchanged.

    Args:
        root: a chain.
        choose: the reading.
        accept: chance to accept x, drafted at node i of `nodes`.
        correct: law of the correction after x was refused at node i.
        bonus: law of the last token when everything was accepted.
    """
    nodes, drafts = unroll(root)
    for i, x in enumerate(drafts):
        if not choose.flip(accept(nodes, i, x), at=nodes[i + 1]):
            return (*drafts[:i], choose(correct(nodes, i, x)))
    return (*drafts, choose(bonus(nodes)))


def deduct(p: Law, q: Law, x: int) -> tuple[Law, Law]:
    """Return target and draft law after x, an independent draw from q, was refused."""
    return residual(p, q), q


def deduct_and_remove(p: Law, q: Law, x: int) -> tuple[Law, Law]:
    """Return target and draft law after x, drawn from q without replacement, was refused."""
    return residual(p, q), without(q, x)


def verify_tree(
    root: Node,
    choose: Choose,
    *,
    order: Callable[[Node], Siblings] = lambda node: node.children,
    accept: Callable[[Law, Law, int], Number] = chance,
    refuse: Callable[[Law, Law, int], tuple[Law, Law]] = deduct,
    last: Callable[[Node, Law], Law] = lambda node, p: p,
) -> tuple[int, ...]:
    """Verify a tree as `rrs_with` does, with parts exchanged.

    Args:
        root: a tree.
        choose: the reading.
        order: the siblings below a node, in the order they are tried.
        accept: chance to accept x under the current p and q.
        refuse: the next p and q after x was refused.
        last: law of the correction, from the node and the p left after its last sibling.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q = node.p, node.q
        for x, child in order(node):
            if choose.flip(accept(p, q, x), at=child):
                out, node = (*out, x), child
                break
            p, q = refuse(p, q, x)
        else:
            return (*out, choose(last(node, p)))
    return (*out, choose(node.p))


def verify_from_each(
    root: Node,
    choose: Choose,
    *,
    laws: Sequence[Callable[[Law], Law]] = (as_is, uniform),
    order: Callable[[Node, Siblings], Siblings] = lambda node, siblings: siblings,
) -> tuple[int, ...]:
    """Verify a tree as `heterogeneous` does, with parts exchanged.

    Args:
        root: a tree; siblings beyond the number of laws take them in turn again.
        choose: the reading.
        laws: from the q of a node to the law that its first, second, ... sibling is held to.
        order: the siblings below a node, in the order they are tried; each keeps its law.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        held_to = {child.index: law(node.q) for (_, child), law in zip(node.children, cycle(laws))}
        p = node.p
        for x, child in order(node, node.children):
            q = held_to[child.index]
            if choose.flip(chance(p, q, x), at=child):
                out, node = (*out, x), child
                break
            p = residual(p, q)
        else:
            return (*out, choose(p))
    return (*out, choose(node.p))


def with_targets(node: Node, target: Callable[[Node], Law]) -> Node:
    """Return the draft with other target laws, each computed from its node."""
    below = tuple((x, with_targets(child, target)) for x, child in node.children)
    return Node(target(node), node.q, below, node.index)


def distinct(node: Node) -> Siblings:
    """Return the siblings below a node, the first of equal ones standing for all."""
    first: dict[int, Node] = {}
    for x, child in node.children:
        first.setdefault(x, child)
    return tuple(first.items())


def verify_by_running_sum(
    root: Node,
    choose: Choose,
    *,
    siblings: Callable[[Node], Siblings] = distinct,
    bound: Callable[[Number], Number] = lambda total: total,
) -> tuple[int, ...]:
    """Verify a tree as `target_only` does: one coin per node against the running sum of p.

    Args:
        root: a tree.
        choose: the reading.
        siblings: the siblings that count.
        bound: chance that the coin falls below a running sum; nondecreasing, at most 1.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        pairs = siblings(node)
        bounds: list[Number] = [0]
        total: Number = 0
        for x, _ in pairs:
            total = total + node.p[x]
            bounds.append(bound(total))
        masses = [high - low for low, high in pairwise(bounds)]
        fell = choose((*masses, 1 - bounds[-1]), at=node.children[0][1])
        if fell == len(pairs):
            return (*out, choose(outside(node.p, (x for x, _ in pairs))))
        x, node = pairs[fell]
        out = (*out, x)
    return (*out, choose(node.p))


def weigh(weight: Number, p: Law, q: Law, x: int) -> Number:
    """Return min(1, weight p(x)/q(x)); 0 where q(x) = 0."""
    return min(1, weight * p[x] / q[x]) if q[x] > 0 else 0


def beginnings(nodes: Sequence[Node], drafts: Sequence[int], cap: bool = True) -> list[Number]:
    """Return the weights of the beginnings of a chain, that of nothing first, as `block` has them.

    Args:
        nodes, drafts: of a chain, as `unroll` returns them.
        cap: no weight is above 1; without it, they are plain products of ratios.
    """
    weights: list[Number] = [1]
    for node, x in zip(nodes, drafts, strict=False):
        weight = weights[-1] * node.p[x] / node.q[x] if node.q[x] > 0 else 0
        weights.append(min(1, weight) if cap else weight)
    return weights


def missing(node: Node, weight: Number) -> tuple[Number, ...]:
    """Return (weight p - q)+, what a kept beginning of that weight still lacks."""
    return deficit(tuple(weight * w for w in node.p), node.q)


def block_coin(node: Node, weight: Number) -> Number:
    """Return S / (S + 1 - weight), S what is missing: the chance to keep a beginning of `block`."""
    total = sum(missing(node, weight))
    return 1 if weight >= 1 else total / (total + (1 - weight))


def verify_block(
    root: Node,
    choose: Choose,
    *,
    weights: Callable[[list[Node], list[int]], list[Number]] = beginnings,
    coin: Callable[[Node, Number], Number] = block_coin,
    correct: Callable[[Node, Number], Law] = lambda node, weight: settle(
        missing(node, weight), node.p
    ),
) -> tuple[int, ...]:
    """Verify a chain as `block` does, with parts exchanged.

    Args:
        root: a chain.
        choose: the reading.
        weights: of all beginnings, that of nothing first; the last is the coin of the whole draft.
        coin: chance to keep a beginning that ends at this node, if no longer one was kept.
        correct: law of the correction behind such a beginning.
    """
    nodes, drafts = unroll(root)
    by_length = weights(nodes, drafts)
    if not drafts or choose.flip(min(1, by_length[-1]), at=nodes[-1]):
        return (*drafts, choose(nodes[-1].p))
    kept = len(drafts) - 1
    while kept and not choose.flip(coin(nodes[kept], by_length[kept]), at=nodes[kept]):
        kept -= 1
    return (*drafts[:kept], choose(correct(nodes[kept], by_length[kept])))


def verify_branches(
    root: Node,
    choose: Choose,
    *,
    weight: Callable[
        [Node, Number, Number, Law, Law, int], Number
    ] = lambda node, first, r, b, s, x: weigh(r, b, s, x),
    following: Callable[[Law, int], Law] = without,
    left: Callable[[Number, Number], Number] = lambda r, total: (
        1 if r == 1 else total / (total + (1 - r))
    ),
) -> tuple[int, ...]:
    """Verify a tree as `traversal` does, with parts exchanged.

    Args:
        root: a tree.
        choose: the reading.
        weight: of the branch of x, from the node, the weight that the node had at first, and the
            weight, the target and the draft law that refusals have left of it.
        following: from the draft law of x and x to that of the next sibling.
        left: the weight of a node after a refusal, from that before it and the mass that is
            missing; the root's is always 1.
    """

    def visit(node: Node, first: Number) -> tuple[int, ...]:
        r, b, s = first, node.p, node.q
        for x, child in node.children:
            below = visit(child, weight(node, first, r, b, s, x))
            if below:
                return (x, *below)
            wanted = deficit(tuple(r * w for w in b), s)
            b, s = settle(wanted, b), following(s, x)
            r = 1 if node is root else left(r, sum(wanted))
        return (choose(b),) if node is root or choose.flip(r, at=node) else ()

    return visit(root, 1)
