"""Optimal transport: accept as much as any rule can, by an exact plan from siblings to tokens."""

from functools import lru_cache

from specref.choice import Choose
from specref.dist import Law, Number, normalise
from specref.draft import Node
from specref.transport import Drafts, Siblings, carry_out, exact_law, independent, law_of, plan


def transport(root: Node, choose: Choose, *, siblings: Siblings = independent) -> tuple[int, ...]:
    """Follow an optimal plan for the siblings of each node (Sun et al. 2023, SpecTr, section 4).

    The siblings at a node are one draw t from a known law mu over tuples. A plan pi(t, x) says how
    much of the mass of t is emitted as its member x: no more than mu(t) in all, and no more than
    p(x) for each x. Given t, its member x is accepted with pi(t, x) / mu(t); what the plan leaves
    of p is drawn when no member is. Whatever the plan, that is lossless. A plan with the most mass
    is a maximal flow, and its value is the largest chance of acceptance of any rule for drafts from
    mu (see `specref.transport`).

    Best at every node is not best for the round: each node commits before its children are seen.
    `nested_transport` does not.

    The plan lists all V^K tuples, so this is for small V and K: a second for a few thousand tuples.

    Args:
        root: a tree whose siblings were drawn from `siblings`; of equal ones the first is followed.
            Floats are read at their exact binary value, and each row is divided by its sum.
        choose: the reading; the coin of a drafted node is addressed by it.
        siblings: the law of the tuple of siblings.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> print({text: str(mass) for text, mass in law(lambda c: transport(root, c)[:1]).items()})
    {(1,): '2/3', (0,): '1/3'}

    Raises:
        ValueError: siblings that `siblings` does not draw.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        t = tuple(x for x, _ in node.children)
        row, rest = _conditional(exact_law(node.p), exact_law(node.q), t, siblings)
        taken = carry_out(row, node.children, choose)
        if taken is None:
            return (*out, choose(normalise(rest)))
        x, node = taken
        out = (*out, x)
    return (*out, choose(exact_law(node.p)))


@lru_cache(maxsize=4096)
def _conditional(p: Law, q: Law, t: Drafts, siblings: Siblings) -> tuple[dict[int, Number], Law]:
    """Return the chance of each member of t, and what the plan leaves of p."""
    mu = law_of(siblings, q, t, "transport")
    pi = plan(mu, p)
    row = {x: mass / mu[t] for x, mass in pi[t].items()}
    return row, tuple(w - sum(row.get(x, 0) for row in pi.values()) for x, w in enumerate(p))
