"""Which tree to draft: topologies that are best for given chances of acceptance.

A topology is a tuple of paths, one for each node below the root: (1, 0) is the first child of the
second child of the root. `drafters.drawn` and `drafters.static` draft it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import NamedTuple, TypeAlias

from specref.dist import Number, entries, exact_number, exact_row, integers, rational, whole
from specref.model import Context, Model

Paths: TypeAlias = tuple[tuple[int, ...], ...]


class Topology(NamedTuple):
    """A tree and what it earns: expected tokens per round, its paths level by level."""

    tokens: Number
    paths: Paths


def expected_tokens(paths: Iterable[Sequence[int]], acceptance: Iterable[Number]) -> Number:
    """Return F(T), the tokens that a round emits on a tree (Sequoia, Chen et al. 2024, Prop. 3.4).

    A node is reached with the product of the chances along its path; the root counts for the
    correction or bonus.

    Args:
        paths: the nodes below the root.
        acceptance: chance that the first, second, ... sibling is the one accepted (Sequoia's
            positional acceptance); a rank beyond the last is never accepted.

    >>> print(expected_tokens([(0,), (1,), (0, 0)], ["1/2", "1/4"]))
    2

    Raises:
        ValueError: ranks that are no numbers from 0 on, or chances that are negative or sum to more
            than 1.
    """
    chances = _chances(acceptance)
    tokens = rational(1)
    for at, path in enumerate(entries(paths, "paths")):
        ranks = integers(path, f"paths[{at}]")
        if min(ranks, default=0) < 0:
            raise ValueError(f"paths[{at}] = {path} has a negative rank; ranks start at 0")
        tokens = tokens + prod(chances[rank] if rank < len(chances) else 0 for rank in ranks)
    return tokens


def best_tree(nodes: int, acceptance: Iterable[Number], depth: int | None = None) -> Topology:
    """Return the best topology of a size (Sequoia, Chen et al. 2024, section 3.2).

    The recursion adds the last child: T[n, b], the most that n nodes earn with b children at the
    root, is the maximum over m of T[n - m, b - 1] + P[b] max_j T[m, j], with T[1, 0] = 1.

    Args:
        nodes: number of nodes, the root included.
        acceptance: as in `expected_tokens`.
        depth: most levels below the root; no bound if left out.

    >>> best = best_tree(4, ["1/2", "1/4"])
    >>> print(best.tokens, best.paths)
    2 ((0,), (1,), (0, 0))

    Raises:
        ValueError: fewer than one node, a negative depth, a depth that cannot hold the nodes, or
            chances that are negative or sum to more than 1.
    """
    chances = _chances(acceptance)
    nodes = whole(nodes, "nodes", "count the root too", 1)
    most = nodes - 1 if depth is None else whole(depth, "depth", "0 is the root alone", 0)

    @cache
    def best(size: int, levels: int) -> Topology | None:
        """Return the best tree of this size; levels beyond size - 1 make no difference."""
        found = [tree for b in range(size) if (tree := rooted(size, b, levels))]
        return max(found, key=lambda tree: tree.tokens, default=None)

    @cache
    def rooted(size: int, children: int, levels: int) -> Topology | None:
        """Return the best tree of this size with this many children at the root."""
        if children == 0:
            return Topology(rational(1), ()) if size == 1 else None
        if levels == 0:
            return None
        chance = chances[children - 1] if children <= len(chances) else rational(0)
        found = None
        for below in range(1, size - children + 1):
            rest = rooted(size - below, children - 1, min(levels, size - below - 1))
            child = best(below, min(levels - 1, below - 1))
            if rest is None or child is None:
                continue
            tokens = rest.tokens + chance * child.tokens
            if found is None or tokens > found.tokens:
                hung = ((), *child.paths)
                found = Topology(tokens, (*rest.paths, *((children - 1, *path) for path in hung)))
        return found

    tree = best(nodes, min(most, nodes - 1))
    if tree is None:
        raise ValueError(
            f"depth = {depth} holds the root alone, not nodes = {nodes}; allow a level"
        )
    return Topology(tree.tokens, tuple(sorted(tree.paths, key=lambda path: (len(path), path))))


def bound(acceptance: Iterable[Number], width: int) -> Number:
    """Return what no tree with at most `width` children at each node exceeds, however large.

    It is 1 / (1 - P1 - ... - Pwidth): 1/(1 - P1) for chains, 1/(1 - P1 - P2) for binary trees.

    >>> print(bound(["1/2", "1/4"], 1), bound(["1/2", "1/4"], 2))
    2 4

    Raises:
        ValueError: a width below 1, chances that are negative or sum to more than 1, or siblings of
            which one is always accepted: then there is no bound.
    """
    chances = _chances(acceptance)
    width = whole(width, "width", "1 is a chain", 1)
    refused = 1 - sum(chances[:width])
    if refused == 0:
        raise ValueError(f"acceptance sums to 1 over width = {width}, so there is no bound")
    return 1 / refused


class Choice(NamedTuple):
    """The tree that is fastest, and how: nodes with the root, levels below it, speed-up."""

    nodes: int
    depth: int
    speedup: Number
    topology: Topology


def fastest_tree(
    acceptance: Iterable[Number],
    times: Mapping[int, Number],
    draft: Number,
    depth: int,
    plain: Number | None = None,
) -> Choice:
    """Return the size and depth of tree that decode fastest (Sequoia, section 3.4).

    A tree with t tokens and d levels below the root takes d draft steps and one verification.

    Args:
        acceptance: as in `expected_tokens`.
        times: time of verifying by number of nodes, the root included.
        draft: time of one draft step, which makes a level.
        depth: most levels below the root.
        plain: time of a plain target step; `times[1]` if left out.

    >>> best = fastest_tree(["1/2", "1/4"], {1: 10, 2: 10, 4: 10, 8: 20}, draft=1, depth=3)
    >>> print(best.nodes, best.depth, best.speedup)
    4 2 5/3

    Raises:
        ValueError: no times, or times that are not above 0, a negative time of a draft step, or as
            in `best_tree`.
    """
    if not times:
        raise ValueError("times is empty; pass the time of verifying for some sizes")
    if plain is None and 1 not in times:
        raise ValueError("times has no entry for 1 node; add it or pass plain")
    depth = whole(depth, "depth", "0 is the root alone", 0)
    step = _time(draft, "draft")
    verify = {
        whole(nodes, "a size in times", "count the root too", 1): _time(
            time, f"times[{nodes}]", positive=True
        )
        for nodes, time in times.items()
    }
    usual = verify[1] if plain is None else _time(plain, "plain", positive=True)
    chances = _chances(acceptance)
    found = [
        Choice(nodes, levels, tree.tokens * usual / (time + levels * step), tree)
        for nodes, time in verify.items()
        for levels in range(min(1, nodes - 1), min(depth, nodes - 1) + 1)
        for tree in [best_tree(nodes, chances, levels)]
    ]
    if not found:
        raise ValueError(f"depth = {depth} holds none of the sizes in times; allow a level")
    return max(found, key=lambda choice: choice.speedup)


def likeliest_paths(
    model: Model, count: int, depth: int, context: Context = ()
) -> tuple[tuple[Context, Number], ...]:
    """Return the `count` likeliest continuations and their chances: the best deterministic tree.

    On siblings that were drawn from nothing a round accepts the chance of each node's text under
    the target, summed over the nodes. A path is never likelier than its beginning, so the likeliest
    texts are a tree, and with the target for `model` no tree of as many nodes accepts more.

    Args:
        model: what a text's chance is measured by; the draft model where the target is unknown.
        count: number of nodes below the root.
        depth: longest path.
        context: the text of the root.

    Returns:
        ((tokens, chance), ...), likeliest first; fewer where there are not as many texts.

    >>> from specref.model import Table
    >>> paths = likeliest_paths(Table({(): ["7/10", "3/10"]}, order=0), 3, 2)
    >>> print(*(f"{tokens} {chance}" for tokens, chance in paths))
    (0,) 7/10 (0, 0) 49/100 (1,) 3/10

    Raises:
        ValueError: a negative count or depth.
    """
    count = whole(count, "count", "0 drafts nothing", 0)
    depth = whole(depth, "depth", "0 drafts nothing", 0)
    found: list[tuple[Context, Number]] = []
    edge: list[tuple[Context, Number]] = [((), rational(1))]
    while edge and len(found) <= count:
        at = max(range(len(edge)), key=lambda place: edge[place][1])
        tokens, chance = edge.pop(at)
        found.append((tokens, chance))
        if len(tokens) < depth:
            law = model((*context, *tokens))
            edge += [((*tokens, x), chance * w) for x, w in enumerate(law) if w > 0]
    return tuple(found[1 : count + 1])


def _time(value: Number, name: str, positive: bool = False) -> Number:
    time = exact_number(value, name)
    if time < 0 or (positive and time == 0):
        raise ValueError(
            f"{name} = {value} is no time; pass one {'above 0' if positive else '>= 0'}"
        )
    return time


def _chances(acceptance: Iterable[Number]) -> tuple[Number, ...]:
    chances = exact_row(acceptance, "acceptance")
    for rank, chance in enumerate(chances):
        if chance < 0:
            raise ValueError(f"acceptance[{rank}] = {chance} is negative; pass chances")
    if sum(chances) > 1:
        raise ValueError(f"acceptance sums to {sum(chances)}; at most one sibling is accepted")
    return chances
