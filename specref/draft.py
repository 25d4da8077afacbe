"""Drafts: nodes, and the programs that grow chains and trees of them.

A draft is a tree. The root is the end of the text so far, every other node is a drafted token, and
a chain is a tree with one child per node. Each node carries the target law `p` and the draft law
`q` of the token *after* it, so a rule needs nothing but the root.

A drafter is a program `drafter(p, q, shape, choose, context)` that returns the root. Nodes are
numbered in the order drawn, level by level; node 0 is the root.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from specref.choice import Choose, Proposal
from specref.dist import Law, entries, normalise, top, whole, without
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
        beyond: from a token that was not drafted here to the node behind it, which has no children:
            one more call of both models. Its index follows those of the draft. None where the draft
            was built from rows, which do not hold these laws.
    """

    p: Law
    q: Law
    children: tuple[tuple[int, "Node"], ...] = ()
    index: int = 0
    beyond: Callable[[int], "Node"] | None = None


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
    return _link(p_rows, q_rows, tokens, parents, [None] * (len(tokens) + 1))


def _link(
    p_rows: Sequence[Law],
    q_rows: Sequence[Law],
    tokens: Sequence[int],
    parents: Sequence[int],
    beyond: Sequence[Callable[[int], Node] | None],
) -> Node:
    """Build the root as `tree` does, with what lies beyond each node."""
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
        root = Node(p_rows[at], q_rows[at], tuple(reversed(children[at])), at, beyond[at])
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
    return len(widths_of(shape))


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


def hub_pairs(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Draw a token of q and pair it with q's likeliest, the hub (SpecHub, Sun et al. 2024).

    Drawn first, the hub is followed by a draw from the other tokens, if q has any. A single sibling
    is a draw from q.

    Raises:
        ValueError: more than two siblings.
    """

    def siblings(law: Law, width: int, first: int) -> list[int]:
        if width > 2:
            raise ValueError(f"hub_pairs draws pairs, not {width} siblings; pass widths 1 and 2")
        (hub,) = top(law, 1)
        drawn = [choose(law, at=Proposal(first))]
        if width == 2 and drawn[0] != hub:
            drawn.append(hub)
        elif width == 2 and sum(without(law, hub)) > 0:
            drawn.append(choose(without(law, hub), at=Proposal(first + 1)))
        return drawn

    return _grow(p, q, shape, siblings, context)


def top_and_one(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Take the likeliest tokens of q and draw the last sibling from the others (Hu et al. 2025).

    Tokens of draft mass 0 are not taken: when q has fewer tokens than siblings are asked for, all
    of them are siblings, likeliest first, and the last is certain.
    """

    def siblings(law: Law, width: int, first: int) -> list[int]:
        taken: list[int] = []
        for x in top(law, width - 1):
            rest = without(law, x)
            if sum(rest) == 0:
                break
            taken.append(x)
            law = rest
        return [*taken, choose(law, at=Proposal(first + len(taken)))]

    return _grow(p, q, shape, siblings, context)


def as_is(q: Law) -> Law:
    """Return q: the law of a drafter that is the draft model itself."""
    return q


def uniform(q: Law) -> Law:
    """Return the uniform law on the tokens that q can draw.

    >>> from fractions import Fraction
    >>> print(*uniform((Fraction(3, 4), Fraction(0), Fraction(1, 4))))
    1/2 0 1/2
    """
    return normalise([w * 0 + 1 if w > 0 else w * 0 for w in q])


def one_from_each(
    p: Model,
    q: Model,
    shape: Shape,
    choose: Choose,
    context: Context,
    *,
    laws: Sequence[Callable[[Any], Law]] = (as_is, uniform),
) -> Node:
    """Draw the k-th sibling from the k-th draft model, in this order (SpecInfer).

    Args:
        p, q: target and draft; q may return whatever the draft models need, such as their k rows.
        shape: depth of a chain, or widths of a tree, each `len(laws)` or less.
        choose: the reading.
        context: what stands before the draft.
        laws: from what q returns to the law of each draft model.

    Raises:
        ValueError: more siblings than draft models.
    """

    def siblings(law: Any, width: int, first: int) -> list[int]:
        if width > len(laws):
            raise ValueError(
                f"one_from_each draws {len(laws)} siblings, not {width}; pass smaller widths, or "
                "one of laws= for each sibling"
            )
        return [choose(laws[i](law), at=Proposal(first + i)) for i in range(width)]

    return _grow(p, q, shape, siblings, context)


DRAFTS: dict[str, Drafter] = {
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "likeliest": likeliest,
    "one_from_each": one_from_each,
    "hub_pairs": hub_pairs,
    "top_and_one": top_and_one,
}


def _grow(
    p: Model,
    q: Model,
    shape: Shape,
    siblings: Callable[[Law, int, int], list[int]],
    context: Context,
) -> Node:
    """Grow a draft of a shape; `siblings(law, width, first index)` proposes children."""
    widths = widths_of(shape)

    def children(text: Context, first: int) -> list[int]:
        return siblings(q(text), widths[len(text) - len(context)], first)

    return grow(p, q, len(widths), children, context)


def grow(
    p: Model,
    q: Model,
    levels: int,
    siblings: Callable[[Context, int], Sequence[int]],
    context: Context,
) -> Node:
    """Grow a draft level by level, by a function that proposes the children of a text.

    Args:
        p, q: target, and the model whose laws the nodes declare.
        levels: no node is deeper.
        siblings: from a node's text and the index of its first child to the children's tokens.
        context: the text of the root.
    """
    texts = [tuple(context)]
    tokens: list[int] = []
    parents: list[int] = []
    level = [0]
    for _ in range(levels):
        below = []
        for node in level:
            for x in siblings(texts[node], len(texts)):
                below.append(len(texts))
                tokens.append(x)
                parents.append(node)
                texts.append((*texts[node], x))
        level = below
    return _link(
        [p(text) for text in texts],
        [q(text) for text in texts],
        tokens,
        parents,
        [_beyond(p, q, text, len(texts)) for text in texts],
    )


def _beyond(p: Model, q: Model, text: Context, index: int) -> Callable[[int], Node]:
    """Return what gives the node behind `text` and one more token, numbered `index`."""

    def beyond(x: int) -> Node:
        longer = (*text, x)
        return Node(p(longer), q(longer), (), index, _beyond(p, q, longer, index + 1))

    return beyond
