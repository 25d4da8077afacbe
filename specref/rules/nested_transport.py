"""Nested transport: at every node an optimal plan, for the share of the target that it owes."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from specref.choice import Choose
from specref.dist import Law, Number, normalise
from specref.draft import Node
from specref.transport import Drafts, Siblings, distinct, exact_law, law_of, plan

Plan: TypeAlias = Callable[
    [Mapping[Drafts, Number], Sequence[Number]], Mapping[Drafts, Mapping[int, Number]]
]
"""From (mu, wanted masses by token) to pi: pi[t][x] is the mass of t that goes to its member x."""


def nested_transport(
    root: Node, choose: Choose, *, siblings: Siblings = distinct, plan: Plan = plan
) -> tuple[int, ...]:
    """Accept by plans and by whole branches (the idea of UniVer, arXiv 2605.04543).

    Written from the idea, not from the paper's listing. It joins two rules: `transport`, which
    weighs all siblings of a node together but settles on one of them before it looks below it, and
    `traversal`, which waits for whole branches but takes siblings one after the other. The contract
    is that of `traversal`: *a node of weight r must be accepted with probability r, and its text
    then continue with law p*; the root has weight 1.

    A node meets the tuple t of its children with mass mu(t). A transport plan pi says how much of t
    goes to its member x: at most mu(t) leaves t, and at most r p(x) reaches x. So, given t, the
    branch of x must be accepted with probability pi(t, x) / mu(t). Branches are tried in turn, each
    with this share as its weight, divided by the chance that all before it were refused; that a
    branch keeps the contract is the induction. Over all t, x is emitted with the sum of pi(t, x).
    What r p lacks then is made up for at the node itself: of the times that no branch is accepted,
    whatever t was, a fixed share is accepted there, and the missing law is drawn from.

    So *any* plan is lossless. Optimal ones accept equally much at one level, but not below it,
    where it counts how the mass of a branch is spread over tuples. For two levels of two distinct
    siblings, p = (1/2, 1/3, 1/6), q = (1/6, 1/3, 1/2), the mean number of accepted tokens is 16/9
    with some plans and 259/144 with `transport.plan`, which treats tuples of the same members
    alike; a linear program over all lossless verifiers finds no more. With independent siblings it
    does: 1.5503 against 109/72. No plan knows what lies below the siblings, and where laws depend
    on the context `traversal` accepts more now and then.

    Of equal siblings the first is followed: a plan is about tokens. It lists all tuples of K of the
    V tokens, so this is for small V and K.

    Args:
        root: a tree whose siblings were drawn by `siblings`. Floats are read at their exact binary
            value, and each row is divided by its sum.
        choose: the reading; the coin of a drafted node decides whether that node is accepted when
            none of its branches is.
        siblings: from (q, k) to the law of k siblings in the order drawn: `transport.distinct` or
            `transport.independent`, or another.
        plan: from mu and the masses r p to a plan.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> root = tree([p] * 4, [q] * 4, [2, 1, 1], [0, 0, 1])
    >>> for accepted, mass in sorted(law(lambda c: nested_transport(root, c)[:-1]).items()):
    ...     print(accepted, mass)
    () 1/7
    (1,) 4/7
    (2, 1) 2/7

    Raises:
        ValueError: siblings that cannot have been drawn.
    """
    return _visit(root, 1, choose, siblings, plan, is_root=True)


def _visit(
    node: Node,
    r: Number,
    choose: Choose,
    siblings: Siblings,
    plan: Plan,
    is_root: bool = False,
) -> tuple[int, ...]:
    """Return what is emitted below a node of weight r, nothing if the node is refused."""
    tokens = tuple(x for x, _ in node.children)
    shares, own, missing = _shares(exact_law(node.p), exact_law(node.q), r, tokens, siblings, plan)
    untried = dict(shares)
    refused: Number = 1
    for x, child in node.children:
        share = untried.pop(x, 0)
        if share > 0:
            below = _visit(child, share / refused, choose, siblings, plan)
            if below:
                return (x, *below)
            refused = refused - share
    return (choose(missing),) if is_root or choose.flip(own, at=node) else ()


@lru_cache(maxsize=4096)
def _shares(
    p: Law, q: Law, r: Number, tokens: Drafts, siblings: Siblings, plan: Plan
) -> tuple[Mapping[int, Number], Number, Law]:
    """Return the shares of the branches, and weight and law of the node when all are refused."""
    mu = law_of(siblings, q, tokens, "nested_transport")
    missing = [r * mass for mass in p]
    flow = plan(mu, tuple(missing))
    for given in flow.values():
        for x, mass in given.items():
            missing[x] = missing[x] - mass
    total = sum(missing)
    shares = {x: mass / mu[tokens] for x, mass in flow[tokens].items()}
    if total == 0:
        return shares, total, p  # of weight 0, a node needs no law
    return shares, total / (total + (1 - r)), normalise(missing)
