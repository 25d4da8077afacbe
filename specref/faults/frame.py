"""The loops of the honest rules with their parts exchangeable: a fault says only what it changes.

Honest rules never divide by zero, because they meet q(x) = 0 or an empty residual with chance 0.
Faults do meet them. Two conventions keep every fault a proper program on any laws: a draft with
q(x) = 0 is refused, and an empty residual falls back to p.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from specref.choice import Choose
from specref.dist import Law, Number, approximate_exp, normalise, without
from specref.draft import Node

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
