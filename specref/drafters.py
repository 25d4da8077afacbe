"""Drafters of the literature, beyond those of `draft` that the registered rules are made for.

A verifier may use a draft law q only if the drafts were drawn from it. So what matters about a way
of drafting is which context the law of its k-th token can depend on:

    way of drafting               the k-th law sees        declare        program, rule
    ----------------------------  -----------------------  -------------  -------------------------
    smaller model (Leviathan)     text and drafts < k      its q          with_replacement, token
    early exit (LayerSkip)        text and drafts < k      its q          with_replacement, token
    features + token (EAGLE)      text and drafts < k      its q          with_replacement, token
    chained heads (MTP)           text and drafts < k      its q          with_replacement, token
    parallel + Markov (DSpark)    text and drafts < k      its q          with_replacement, token
    parallel heads (Medusa)       text alone               the head's     parallel_heads, token
    several models (SpecInfer)    text and drafts < k      each its own   one_from_each,
                                                                          heterogeneous
    n-gram, prompt lookup         text alone, no draw      a point mass   prompt_lookup, one_hot
    top-k heads (Medusa's tree)   text alone, no draw      nothing        static, target_only
    top-k tree (EAGLE-2)          its own tree, no draw    nothing        ranked, target_only
    siblings drawn (Sequoia)      text and drafts < k      q, less each   drawn, rrs_without
    beam of sequences (RSD-S)     text and drafts < k      q, less each   stochastic_beam,
                                                           sibling        rrs_without

Early exit, feature-level autoregression and chained heads differ from a smaller model in what they
cost and how well they guess, not in law: each token is drawn from a law that knows all drafts
before it, and that law is the q to declare. Parallel heads do not know them. Their drafts are
independent of each other, and a verifier that divides by a q that looks at the drafts is lossy.

Where nothing is drawn, a softmax beside the draft is no draft law: q is a point mass, and rules
that use no q (`one_hot`, `target_only`, `match`) say the same.

How long a draft is may depend on all that was drawn *before* the token in question, and never on
that token or on later ones (`confident`, `scheduled`): where a token is withheld for what it is,
the target draws in its place, and it has a second chance to be emitted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from specref.choice import Choose, Proposal
from specref.dist import (
    Law,
    Number,
    entries,
    exact_number,
    integers,
    normalise,
    rational,
    top,
    whole,
    without,
)
from specref.draft import Drafter, Node, Shape, depth, grow, tree, widths_of, with_replacement
from specref.model import Context, Model

Path: TypeAlias = tuple[int, ...]
"""A place in a topology: which child at each level, the likeliest or first drawn being 0."""


def prompt_lookup(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Copy what followed the last tokens of the text where they stood before (Saxena 2023).

    The longest ending of the text that occurs earlier is looked up, of several occurrences the
    first, and at most `depth(shape)` tokens behind it are copied; fewer where the text ends, none
    where even the last token is new. vLLM (`NgramProposer`) and transformers choose alike, with a
    bound on the length of the ending.

    The drafts are certain, so `Node.q` is the point mass at the drafted token, the draft model q is
    not called, and `token` and `one_hot` agree. Behind the last draft nothing is proposed; the row
    there is the target's, which no rule reads.

    >>> from specref.dist import normalise
    >>> from specref.draft import flat
    >>> def flat_law(context): return normalise([1, 1, 1, 1])
    >>> flat(prompt_lookup(flat_law, flat_law, 2, None, (0, 1, 2, 3, 0, 1)))[0]
    (2, 3)

    Raises:
        ValueError: a shape that is a tree with siblings.
    """
    if max(widths_of(shape), default=1) > 1:
        raise ValueError(
            f"shape = {shape!r} is a tree, but a lookup copies one chain; pass a depth"
        )
    text = tuple(context)
    copied = _continuation(text)[: depth(shape)]
    laws = [p((*text, *copied[:at])) for at in range(len(copied) + 1)]
    certain = [tuple(rational(int(y == x)) for y in range(len(laws[0]))) for x in copied]
    return tree(laws, [*certain, laws[-1]], copied, range(len(copied)))


def _continuation(text: Context) -> Context:
    """Return what follows the first occurrence of the longest ending that occurs earlier."""
    for length in range(len(text) - 1, 0, -1):
        ending = text[-length:]
        for end in range(length, len(text)):
            if text[end - length : end] == ending:
                return text[end:]
    return ()


def heads(q: Model, context: Context) -> Model:
    """Return the best that parallel heads can know: the k-th next token, given `context` alone.

    The law after k - 1 drafts is that of the k-th next token of q after `context`, summed over
    all that may lie between; the drafts themselves it does not see.

    >>> from specref.model import Table
    >>> q = Table({(): ["1/2", "1/2"], (0,): [1, 0], (1,): ["1/4", "3/4"]}, order=1)
    >>> print(*heads(q, ())((0,)), *heads(q, ())((1,)))
    5/8 3/8 5/8 3/8
    """
    root = tuple(context)
    between: list[dict[Context, Number]] = [{(): 1}]
    laws: list[Law] = []

    def law(text: Context) -> Law:
        while len(laws) <= len(text) - len(root):
            masses = between[-1]
            rows = {path: q((*root, *path)) for path in masses}
            vocab = len(rows[next(iter(rows))])
            laws.append(
                tuple(sum(masses[path] * rows[path][x] for path in rows) for x in range(vocab))
            )
            between.append(
                {
                    (*path, x): masses[path] * chance
                    for path, row in rows.items()
                    for x, chance in enumerate(row)
                    if chance > 0
                }
            )
        return laws[len(text) - len(root)]

    return law


def parallel_heads(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
    """Draw the k-th token from the k-th head, which sees the root's text alone (Medusa, DFlash).

    The drafts are independent of each other, and `Node.q` is the law of the head. It is lossless
    with `token` on chains and, siblings being drawn with replacement, with `rrs_with` on trees.
    """
    return with_replacement(p, heads(q, context), shape, choose, context)


def static(paths: Iterable[Sequence[int]]) -> Drafter:
    """Return the drafter of one fixed tree of ranks: Medusa's topology (Cai et al. 2024).

    The node (r1, ..., rk) holds the token that the k-th of the parallel `heads` ranks at rk, 0
    being the likeliest. Nothing is drawn, so verify with `target_only`. Of the shape only the depth
    is read: deeper nodes are left out.

    Args:
        paths: nodes below the root, in any order; with a node its parent.

    Raises:
        ValueError: paths that are no tree; on a draft, a rank that the vocabulary does not have.
    """
    topology = _topology(paths)

    def static_tree(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        def ranked_tokens(law: Law, ranks: list[int], first: int) -> list[int]:
            if ranks and max(ranks) >= len(law):
                raise ValueError(
                    f"paths has rank {max(ranks)}, but there are {len(law)} tokens; pass ranks "
                    f"below {len(law)}"
                )
            order = top(law, len(law))
            return [order[rank] for rank in ranks]

        return _fill(topology, ranked_tokens, p, heads(q, context), shape, context)

    return static_tree


def drawn(paths: Iterable[Sequence[int]]) -> Drafter:
    """Return the drafter of one fixed tree whose siblings are drawn (Sequoia, Chen et al. 2024).

    The node (r1, ..., rk) is the rk-th token drawn without replacement from q behind its parent,
    counted from 0; fewer where q runs out of tokens (Sequoia then goes on with tokens that q cannot
    draw). Verify with `rrs_without`. Of the shape only the depth is read: deeper nodes are left
    out.

    Args:
        paths: nodes below the root, in any order; with a node its parent and its earlier siblings.

    Raises:
        ValueError: paths that are no tree, or a sibling drawn before that is left out.
    """
    topology = _topology(paths)
    for path, ranks in topology.items():
        if ranks != list(range(len(ranks))):
            raise ValueError(f"paths has children {ranks} below {path}; number them from 0 on")

    def drawn_tree(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        def draw(law: Law, ranks: list[int], first: int) -> list[int]:
            tokens: list[int] = []
            while len(tokens) < len(ranks) and sum(law) > 0:
                tokens.append(choose(law, at=Proposal(first + len(tokens))))
                law = without(law, tokens[-1])
            return tokens

        return _fill(topology, draw, p, q, shape, context)

    return drawn_tree


def _topology(paths: Iterable[Sequence[int]]) -> dict[Path, list[int]]:
    """Return the ranks of the children of every node, checked to be a tree."""
    found = [
        tuple(integers(path, f"paths[{at}]")) for at, path in enumerate(entries(paths, "paths"))
    ]
    children: dict[Path, list[int]] = {(): []}
    for path in sorted(found, key=lambda path: (len(path), path)):
        if not path:
            raise ValueError("paths has an empty path; leave the root out")
        if path[-1] < 0:
            raise ValueError(f"paths has {path}; ranks are numbers from 0 on")
        if path[:-1] not in children:
            raise ValueError(f"paths has {path} without its parent {path[:-1]}; add the parent")
        if path in children:
            raise ValueError(f"paths has {path} twice; name each node once")
        children[path[:-1]].append(path[-1])
        children[path] = []
    return children


def _fill(
    topology: dict[Path, list[int]],
    pick: Callable[[Law, list[int], int], list[int]],
    p: Model,
    q: Model,
    shape: Shape,
    context: Context,
) -> Node:
    """Fill a topology with tokens; `pick(law, ranks, first index)` gives those of one node."""
    root = tuple(context)
    places: dict[Context, Path] = {root: ()}  # distinct siblings: a text has one place

    def siblings(text: Context, first: int) -> list[int]:
        ranks = topology[places[text]]
        tokens = pick(q(text), ranks, first)
        for rank, x in zip(ranks, tokens, strict=False):  # q may have run out of tokens
            places[(*text, x)] = (*places[text], rank)
        return tokens

    return grow(p, q, depth(shape), siblings, root)


def ranked(total: int, width: int) -> Drafter:
    """Return the drafter of EAGLE-2's dynamic trees (Li et al. 2024, section 4).

    Level by level, the `width` likeliest nodes are given their `width` likeliest tokens, a node's
    likelihood being that of its whole path under q; of all nodes the `total` likeliest are kept. No
    path is likelier than its beginning, so they are a tree. Nothing is drawn, so verify with
    `target_only`; `Node.q` holds what ranked the tokens and is no draft law. Of the shape only the
    depth is read. Ties go to the node that was met first.

    Raises:
        ValueError: a total or a width below 1.
    """
    total = whole(total, "total", "keep at least 1 node", 1)
    width = whole(width, "width", "expand at least 1 node", 1)

    def ranked_tree(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        root = tuple(context)
        frontier: list[tuple[Context, Number]] = [(root, 1)]
        met: list[tuple[Context, Number]] = []
        for _ in range(depth(shape)):
            grown = [
                ((*text, x), chance * law[x])
                for text, chance in frontier
                for law in [q(text)]
                for x in top(law, width)
            ]
            met += grown
            frontier = _likeliest(grown, width)
        kept = [text for text, _ in _likeliest(met, total)]
        below: dict[Context, list[int]] = {text: [] for text in [root, *kept]}
        for text in kept:
            below[text[:-1]].append(text[-1])
        return grow(p, q, depth(shape), lambda text, first: below[text], root)

    return ranked_tree


def _likeliest(found: list[tuple[Context, Number]], count: int) -> list[tuple[Context, Number]]:
    return sorted(found, key=lambda node: -node[1])[:count]


def stochastic_beam(width: int) -> Drafter:
    """Return the drafter of a stochastic beam (Kool et al. 2019; RSD-S, Jeon et al. 2024).

    Published as a beam search over q whose scores are Gumbel noise on log-likelihoods. In law: draw
    whole sequences of q without replacement; level l of the tree is the first `width` distinct
    prefixes of length l, and the children of a node stand in the order in which they arrived. Of
    the shape only the depth is read.

    Siblings are thus drawn without replacement, but *how many* a node has depends on tokens
    elsewhere in the tree. `rrs_without` is nevertheless lossless: whether one more sibling arrives
    in time depends on the siblings before it and on other branches, never on its own token (the
    winner of a race tells nothing about its time). Settled by exact enumeration for 2 and 3 tokens,
    depths 2 and 3, widths 2 and 3, with zeros; see `tests/test_drafters.py`.

    The program draws sequences only until the last level is full, and for each level above only
    the prefixes that it still lacks: what arrives later inside a known prefix changes nothing
    there, and the next new prefix is drawn in proportion to its mass.

    Raises:
        ValueError: a width below 1.
    """
    width = whole(width, "width", "keep at least 1 prefix", 1)

    def beam(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        root = tuple(context)
        levels = depth(shape)
        masses: list[dict[Context, Number]] = [{root: 1}]
        for _ in range(levels):
            masses.append(
                {
                    (*text, x): mass * chance
                    for text, mass in masses[-1].items()
                    for x, chance in enumerate(q(text))
                    if chance > 0
                }
            )
        below: dict[Context, list[int]] = {root: []}
        arrived: list[Context] = []
        draws = 0
        for level in range(levels, 0, -1):
            arrived = list(dict.fromkeys(text[: len(root) + level] for text in arrived))
            waiting = {t: mass for t, mass in masses[level].items() if t not in arrived}
            while len(arrived) < width and waiting:
                draws += 1  # no more draws than nodes, so their numbers serve as addresses
                pick = choose(normalise(waiting.values()), at=Proposal(draws))
                arrived.append(list(waiting)[pick])
                del waiting[arrived[-1]]
            for text in arrived:
                below.setdefault(text, [])
                below.setdefault(text[:-1], []).append(text[-1])
        return grow(p, q, levels, lambda text, first: below[text], root)

    return beam


def confident(threshold: Number) -> Drafter:
    """Return the drafter that goes on only below tokens it was sure of (transformers, assisted).

    Tokens are drawn from q. Nothing is drafted behind one of q(x) < threshold, but that token
    itself is submitted: lossless with `token`, on trees with `rrs_with`. To withhold it is not,
    because then the target draws in its place and the token has a second chance to be emitted.

    Args:
        threshold: of q at the drafted token, anything `dist.rational` reads.

    Raises:
        ValueError: a threshold that is no number.
    """
    least = exact_number(threshold, "threshold")

    def confident_tree(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        root, widths = tuple(context), widths_of(shape)

        def siblings(text: Context, first: int) -> list[int]:
            if text != root and q(text[:-1])[text[-1]] < least:
                return []
            law = q(text)
            width = widths[len(text) - len(root)]
            return [choose(law, at=Proposal(first + at)) for at in range(width)]

        return grow(p, q, len(widths), siblings, root)

    return confident_tree


def scheduled(length: Callable[[Context], int]) -> Drafter:
    """Return the drafter whose depth is decided before anything is drawn (by load, by request).

    Tokens are drawn from q with replacement: lossless with `token` and `rrs_with` for any schedule.

    Args:
        length: the number of levels after a text; at most the depth of the shape is drafted.
    """

    def scheduled_tree(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        levels = whole(length(tuple(context)), "length(context)", "return levels to draft", 0)
        return with_replacement(p, q, widths_of(shape)[:levels], choose, context)

    return scheduled_tree
