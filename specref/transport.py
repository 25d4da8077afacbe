"""The best that any rule can do with several drafts at one position: optimal transport.

A drafter proposes the tuple t with mass mu(t), the target wants the token x with mass p(x), and a
lossless rule is a plan: how much of t's mass is emitted as x. What is emitted from among the drafts
is accepted, so the best rule is a plan with the most mass on pairs where x is in t (SpecTr, Sun et
al. 2023, section 4). That is a maximal flow from tuples to tokens, computed here in integers over
a common denominator, hence exactly; and by duality a minimal cut, which says what stands in the
way (Hu et al. 2025; Khisti et al. 2025 for two drafts).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from specref.dist import (
    Law,
    Number,
    exact_number,
    exact_row,
    integers,
    is_exact,
    normalise,
    rational,
    whole,
    without,
)

Child = TypeVar("Child")

Drafts: TypeAlias = tuple[int, ...]

Siblings: TypeAlias = Callable[[Law, int], dict[Drafts, Number]]
"""From (q, k) to the law of the tuple of k siblings, in the order drawn."""


def independent(q: Law, k: int) -> dict[Drafts, Number]:
    """Return the law of `k` independent draws from q.

    >>> from fractions import Fraction as F
    >>> independent((F(1, 3), F(2, 3)), 2)[(1, 0)]
    Fraction(2, 9)

    Raises:
        ValueError: a negative number of draws.
    """
    return _drawn(q, k, lambda law, x: law)


def distinct(q: Law, k: int) -> dict[Drafts, Number]:
    """Return the law of `k` draws from q without replacement; fewer when q runs out of tokens.

    >>> from fractions import Fraction as F
    >>> print(*distinct((F(1, 3), F(2, 3), F(0)), 3).items())
    ((0, 1), Fraction(1, 3)) ((1, 0), Fraction(2, 3))

    Raises:
        ValueError: a negative number of draws.
    """
    return _drawn(q, k, without)


def exact_law(row: Iterable[Number]) -> Law:
    """Return a row as exact numbers, floats at their exact binary value, divided by its sum."""
    return normalise(rational(w) for w in row)


def law_of(siblings: Siblings, q: Law, drafted: Drafts, rule: str) -> dict[Drafts, Number]:
    """Return the law of tuples as long as `drafted`, which must be one of those drawn.

    Args:
        siblings: from (q, k) to the law of the tuple.
        q: draft law [V].
        drafted: the siblings that a rule met.
        rule: its name, for the errors.

    Raises:
        ValueError: masses that do not sum to one, or none for `drafted`.
    """
    mu = siblings(q, len(drafted))
    total = sum(mu.values())
    if is_exact(total) and total != 1:
        raise ValueError(
            f"{rule}: siblings= returned masses that sum to {total}, not 1; "
            "return the law of the tuple"
        )
    if not mu.get(drafted, 0) > 0:
        raise ValueError(
            f"{rule} got the siblings {list(drafted)}, which are never drawn from q = "
            f"({', '.join(map(str, q))}); pass siblings= for the way they were drawn"
        )
    return mu


def _drawn(q: Law, k: int, after: Callable[[Law, int], Law]) -> dict[Drafts, Number]:
    """Return the law of `k` draws, where `after(law, x)` is the law that follows a draw of x."""
    live: dict[Drafts, tuple[Number, Law]] = {(): (1, q)}
    for _ in range(whole(k, "k", "draw 0 tokens or more", 0)):
        grown: dict[Drafts, tuple[Number, Law]] = {}
        for drafts, (mass, law) in live.items():
            if not any(law):
                grown[drafts] = mass, law
            for x, chance in enumerate(law):
                if chance > 0:
                    grown[*drafts, x] = mass * chance, after(law, x)
        live = grown
    return {drafts: mass for drafts, (mass, _) in live.items()}


def plan(mu: Mapping[Drafts, Number], p: Iterable[Number]) -> dict[Drafts, dict[int, Number]]:
    """Return an optimal plan: pi[t][x], the mass of t that is accepted as its member x.

    No tuple gives more than mu(t), no token gets more than p(x), and no plan accepts more in all.
    Optimal plans are rarely unique; this one treats tuples with the same members alike, each in
    proportion to its mass, so it depends neither on the order of siblings nor on repeats. Nor does
    it depend on the names of tokens, unless two of them are wanted alike and offered alike (equal
    p, equal mass of tuples with them); then the lower id goes first.

    Args:
        mu: mass by tuple of drafts; anything `rational` reads, floats at their exact binary value.
        p: mass by token [V]. Neither needs to sum to one: what is left of a target after other
            rules, or a target scaled by the weight of its node, is a target too.

    >>> half = rational(1, 2)
    >>> pi = plan({(0, 0): half, (0, 1): half}, [half, half])
    >>> print(pi[0, 0][0], pi[0, 1][0], pi[0, 1][1])
    1/2 0 1/2

    Raises:
        ValueError: a mass that is negative or no number, or a draft outside the vocabulary.
    """
    drafts, target = _read(mu, p)
    together, flows, _ = _flow(drafts, target)
    out: dict[Drafts, dict[int, Number]] = {}
    for t, mass in drafts:
        members = frozenset(t)
        share = mass / together[members] if mass else mass
        out[t] = {x: share * flows.get((members, x), 0) for x in dict.fromkeys(t)}
    return out


def carry_out(
    row: Mapping[int, Number], children: Sequence[tuple[int, Child]], choose: Any
) -> tuple[int, Child] | None:
    """Take a child by one row of a plan, or none with the chance that the row leaves.

    The children are tested in turn, each with its chance given that none before it was taken, so
    every coin decides about its own child and no other. Of equal children the first is tested.

    Args:
        row: chance by token, given the children; those left out have none.
        children: (token, node) of every child.
        choose: the reading; the coin of a child is addressed by its node.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> children = (2, "first"), (1, "second")
    >>> law(lambda choose: carry_out({2: F(1, 3), 1: F(1, 2)}, children, choose))
    {(2, 'first'): Fraction(1, 3), (1, 'second'): Fraction(1, 2), None: Fraction(1, 6)}
    """
    first: dict[int, Child] = {}
    for x, child in children:
        first.setdefault(x, child)
    left: Number = Fraction(1)  # not the integer: an integer chance over it would be a float
    for x, child in first.items():
        chance = row.get(x, 0)
        if choose.flip(min(1, chance / left), at=child):
            return x, child
        left = left - chance
    return None


class Optimum(NamedTuple):
    """The largest mass that can be accepted, and the tokens H of a cut that allows no more."""

    value: Number
    cut: frozenset[int]


def optimum(mu: Mapping[Drafts, Number], p: Iterable[Number]) -> Optimum:
    """Return the largest accepted mass, and the cut that proves that there is no larger one.

    For every set H of tokens, accepted tokens inside H have mass p(H) at most, and the others come
    from tuples that are not inside H. So `cut_value` bounds every rule, and at the returned H it is
    attained. Of several such H it is the smallest.

    Args: as for `plan`.

    >>> p, q = [rational(w, 10) for w in (5, 3, 2)], [rational(w, 10) for w in (2, 2, 6)]
    >>> print(*optimum(independent(q, 2), p))
    21/25 frozenset({2})

    Raises:
        ValueError: as for `plan`.
    """
    drafts, target = _read(mu, p)
    _, _, cut = _flow(drafts, target)
    return Optimum(cut_value(mu, p, cut), cut)


def cut_value(mu: Mapping[Drafts, Number], p: Iterable[Number], tokens: Collection[int]) -> Number:
    """Return p(H) + mu(tuples not inside H), an upper bound on accepted mass for every set H.

    It is `p(H) + 1 - mu(all drafts in H)` when mu sums to one.

    Raises:
        ValueError: as for `plan`, or a token outside the vocabulary.
    """
    drafts, target = _read(mu, p)
    inside = frozenset(tokens)
    if not inside <= set(range(len(target))):
        raise ValueError(f"tokens = {list(tokens)}, but p has tokens 0 to {len(target) - 1}")
    return sum((mass for t, mass in drafts if not inside.issuperset(t)), rational(0)) + sum(
        target[x] for x in inside
    )


def optimum_by_lp(mu: Mapping[Drafts, Number], p: Iterable[Number]) -> float:
    """Return the largest accepted mass by linear programming, in floats (HiGHS).

    It shares nothing with `optimum` but the statement of the problem, so it can check it.

    Raises:
        ValueError: as for `plan`.
    """
    from scipy.optimize import linprog

    drafts, target = _read(mu, p)
    pairs = [(row, x) for row, (t, _) in enumerate(drafts) for x in sorted(set(t))]
    if not pairs:
        return 0.0
    rows = [[float(row == i) for row, _ in pairs] for i in range(len(drafts))]
    columns = [[float(x == y) for _, x in pairs] for y in range(len(target))]
    limits = [*(float(mass) for _, mass in drafts), *map(float, target)]
    solved = linprog([-1.0] * len(pairs), A_ub=rows + columns, b_ub=limits, method="highs")
    if solved.status != 0:
        raise RuntimeError(f"the solver stopped without an optimum: {solved.message}")
    return -float(solved.fun)


Exact: TypeAlias = tuple[tuple[Drafts, Number], ...]


def _read(mu: Mapping[Drafts, Number], p: Iterable[Number]) -> tuple[Exact, Law]:
    """Return both laws in exact numbers, or say what is wrong with them."""
    target = exact_row(p, "p")
    for x, mass in enumerate(target):
        if mass < 0:
            raise ValueError(f"p[{x}] = {mass} is negative; masses are >= 0")
    drafts = []
    for t, mass in mu.items():
        for x in integers(t, f"mu's key {t!r}"):
            if not 0 <= x < len(target):
                raise ValueError(
                    f"mu has a draft {x} in {t}, but p has tokens 0 to {len(target) - 1}"
                )
        exact = exact_number(mass, f"mu[{t}]")
        if exact < 0:
            raise ValueError(f"mu[{t}] = {exact} is negative; masses are >= 0")
        drafts.append((t, exact))
    return tuple(drafts), target


@lru_cache(maxsize=4096)
def _flow(
    drafts: Exact, target: Law
) -> tuple[dict[frozenset[int], Number], dict[tuple[frozenset[int], int], Number], frozenset[int]]:
    """Return the mass of each set of members, the optimal flow from sets to tokens, and the cut."""
    import networkx

    together: dict[frozenset[int], Number] = {}
    for t, mass in drafts:
        together[frozenset(t)] = together.get(frozenset(t), rational(0)) + mass
    scale = math.lcm(*(int(w.denominator) for w in (*target, *together.values())))
    # Nodes are numbered by masses, not by names, and are integers: the flow found depends on the
    # order of nodes, so it is the same for renamed tokens and in every run.
    offered = [sum(m for s, m in together.items() if x in s) for x in range(len(target))]
    order = sorted(range(len(target)), key=lambda x: (target[x], offered[x]))
    number = {x: at for at, x in enumerate(order, start=1)}
    sets = sorted(together, key=lambda members: sorted(number[x] for x in members))
    source, sink = 0, 1 + len(target) + len(sets)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(sink + 1))
    for x, at in number.items():
        graph.add_edge(at, sink, capacity=int(target[x] * scale))
    for at, members in enumerate(sets, start=1 + len(target)):
        graph.add_edge(source, at, capacity=int(together[members] * scale))
        graph.add_edges_from((at, node) for node in sorted(number[x] for x in members))
    flow: dict[int, dict[int, Any]] = networkx.maximum_flow(graph, source, sink)[1]
    flows = {
        (members, order[node - 1]): rational(amount, scale)
        for at, members in enumerate(sets, start=1 + len(target))
        for node, amount in flow[at].items()
    }
    # The cut is what still can be reached from the source.
    reached, todo = {source}, [source]
    while todo:
        node = todo.pop()
        onward = [
            to
            for to, edge in graph[node].items()
            if flow[node][to] < edge.get("capacity", math.inf)
        ]
        back = [up for up in graph.predecessors(node) if flow[up][node] > 0]
        fresh = {*onward, *back} - reached
        reached |= fresh
        todo += fresh
    return (
        together,
        flows,
        frozenset(order[node - 1] for node in reached if 1 <= node <= len(target)),
    )
