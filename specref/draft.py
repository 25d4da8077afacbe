"""Drafts: nodes, and the programs that grow chains and trees of them.

A draft is a tree. The root is the end of the text so far, every other node is a drafted token, and
a chain is a tree with one child per node. Each node carries the target law `p` and the draft law
`q` of the token *after* it, so a rule needs nothing but the root.

A drafter is a program `drafter(p, q, shape, choose, context)` that returns the root. Nodes are
numbered in the order drawn, level by level; node 0 is the root.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specref.choice import Choose, Proposal
from specref.dist import Law, entries, top, whole, without
from specref.model import Context, Model

Shape: TypeAlias = int | tuple[int, ...]
"""Depth of a chain, or the number of siblings at each level of a tree."""


@dataclass(frozen=True, eq=False)
class Node:
    """A point of the draft: the laws of the next token, and the tokens proposed for it.

    Attributes:
        p: target law [V].
        q: draft law [V].
        children: ((token, node), ...) in the order drawn.
        index: number of the node in its draft; 0 is the root.
    """

    p: Law
    q: Law
    children: tuple[tuple[int, "Node"], ...] = ()
    index: int = 0


Drafter: TypeAlias = Callable[[Model, Model, Shape, Choose, Context], Node]


def tree(
    p_rows: Sequence[Law], q_rows: Sequence[Law], tokens: Sequence[int], parents: Sequence[int]
) -> Node:
    """Build the root from flat rows.

    Args:
        p_rows, q_rows: laws [nodes][V], row 0 for the root.
        tokens: drafted tokens of the nodes 1, 2, ...; length nodes - 1.
        parents: index of each one's parent; a parent stands before its children.

    Raises:
        ValueError: lengths that do not fit, a parent at or after its child, a token outside the
            vocabulary.
    """
    count = len(tokens) + 1
    if len(p_rows) != count:
        raise ValueError(f"p_rows has {len(p_rows)} rows; {len(tokens)} drafts need {count}")
    if len(q_rows) != count:
        raise ValueError(f"q_rows has {len(q_rows)} rows; {len(tokens)} drafts need {count}")
    if len(parents) != len(tokens):
        raise ValueError(f"parents has {len(parents)} entries for {len(tokens)} drafts")
    vocab = len(p_rows[0])
    for at, (x, parent) in enumerate(zip(tokens, parents, strict=True), start=1):
        if not 0 <= parent < at:
            raise ValueError(f"parent {parent} of node {at} does not stand before it")
        if not 0 <= x < vocab:
            raise ValueError(f"drafts[{at - 1}] = {x} is outside 0 <= token < {vocab}")
    children: list[list[tuple[int, Node]]] = [[] for _ in range(count)]
    root = None
    for at in range(count - 1, -1, -1):
        root = Node(p_rows[at], q_rows[at], tuple(reversed(children[at])), at)
        if at:
            children[parents[at - 1]].append((tokens[at - 1], root))
    assert root is not None
    return root


def chain(p_rows: Sequence[Law], q_rows: Sequence[Law], tokens: Sequence[int]) -> Node:
    """Build a chain: `tree` in which every node is the parent of the next."""
    return tree(p_rows, q_rows, tokens, range(len(tokens)))


def nodes(root: Node) -> list[Node]:
    """Return all nodes in the order of their index."""
    found, todo = [], [root]
    while todo:
        node = todo.pop()
        found.append(node)
        todo += [child for _, child in node.children]
    return sorted(found, key=lambda node: node.index)


def flat(root: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (tokens, parents) of the nodes 1, 2, ...: the inverse of `tree`."""
    order = nodes(root)
    pairs = {child.index: (x, node.index) for node in order for x, child in node.children}
    listed = [pairs[at] for at in range(1, len(order))]
    return tuple(x for x, _ in listed), tuple(parent for _, parent in listed)


def depth(shape: Shape) -> int:
    """Return gamma, the largest number of tokens that one round can accept."""
    return shape if isinstance(shape, int) else len(shape)


def widths_of(shape: Shape) -> tuple[int, ...]:
    """Return the number of siblings at each level; 1 everywhere for a chain.

    Raises:
        ValueError: a shape that is neither a depth >= 0 nor widths >= 1.
    """
    cure = "pass a depth >= 0 for a chain, or a tuple of widths >= 1 for a tree"
    if isinstance(shape, Iterable):
        listed = enumerate(entries(shape, "shape"))
        return tuple(whole(width, f"shape[{at}]", cure, 1) for at, width in listed)
    return (1,) * whole(shape, "shape", cure, 0)


def with_replacement(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Draw every token from q, siblings independently (SpecInfer; the usual chain for width 1)."""

    def siblings(law: Law, width: int, first: int) -> list[int]:
        return [choose(law, at=Proposal(first + i)) for i in range(width)]

    return _grow(p, q, shape, siblings, context)


def without_replacement(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Draw siblings from q without replacement (RSD, Sequoia); fewer when q runs out of tokens."""

    def siblings(law: Law, width: int, first: int) -> list[int]:
        drawn: list[int] = []
        while len(drawn) < width and sum(law) > 0:
            drawn.append(choose(law, at=Proposal(first + len(drawn))))
            law = without(law, drawn[-1])
        return drawn

    return _grow(p, q, shape, siblings, context)


def likeliest(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Take the likeliest tokens of q, no draw: greedy chains, top-k trees (EAGLE-2, n-grams)."""
    return _grow(p, q, shape, lambda law, width, first: list(top(law, width)), context)


DRAFTS: dict[str, Drafter] = {
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "likeliest": likeliest,
}


def _grow(
    p: Model,
    q: Model,
    shape: Shape,
    siblings: Callable[[Law, int, int], list[int]],
    context: Context,
) -> Node:
    """Grow a draft level by level; `siblings(law, width, first index)` proposes children."""
    widths = widths_of(shape)
    texts = [tuple(context)]
    tokens: list[int] = []
    parents: list[int] = []
    level = [0]
    for width in widths:
        below = []
        for node in level:
            for x in siblings(q(texts[node]), width, len(texts)):
                below.append(len(texts))
                tokens.append(x)
                parents.append(node)
                texts.append((*texts[node], x))
        level = below
    return tree([p(text) for text in texts], [q(text) for text in texts], tokens, parents)
