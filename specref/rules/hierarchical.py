"""Hierarchical verification, naive form: the most that a chain can keep, for more model calls."""

from specref.choice import Choose
from specref.dist import Law, Number, excess
from specref.draft import Node


def hierarchical(root: Node, choose: Choose) -> tuple[int, ...]:
    """Keep a chain up to the joint overlap, then redraw the rest (Zhou et al. 2026, HSD, Alg. 1).

    Look at whole beginnings x^t of t tokens. Target and drafter give them the joint masses P(x^t)
    and Q(x^t), and no lossless rule keeps x^t with mass above min(P, Q). This one keeps just that,
    for all t at once. Over the tokens v that can follow x^t, write

        gain = sum_v (P(x^t v) - Q(x^t v))+,    loss = sum_v (Q(x^t v) - P(x^t v))+.

    From the end of the chain towards its start, x^t is accepted with probability

        h_gamma = min(1, P/Q),    h_t = gain / max(gain, loss),

    which is 1 at the root. The longest accepted beginning x^tau is kept, and every position from
    tau + 1 to gamma is redrawn from norm((P - Q)+) over the tokens that can follow what stands
    before it by then.

    Why it is lossless. *Every beginning is kept with mass min(P, Q), and redrawn, in whole or at
    its end, with mass (P - Q)+; together P.* Kept: at t = gamma that is the coin. Before it,
    Q - min(P, Q), summed over v, is refused behind x^t: just `loss`. The coin lets min(gain, loss)
    of it pass, and sum_v min(P, Q)(x^t v) + min(gain, loss) = min(P, Q)(x^t). Redrawn: at x^t
    arrive (P - Q)+ from above and min(gain, loss) from its coin. Since gain - loss = P - Q they
    are `gain` in all, which is the total of (P - Q)+ over v, so drawing v in proportion gives each
    its own. Both ends meet at gamma tokens. If all are kept, the target draws a bonus behind them.

    What it costs: the laws behind redrawn tokens, one more call of both models for each of them but
    the last. What it gives: E[tau] = sum_t sum_x min(P, Q)(x^t), which `block` does not reach, as
    it leaves the targets of later tokens alone. What it emits: gamma + 1 tokens if it keeps all,
    else gamma tokens, and no bonus, as nothing was called behind the last of them. The form that
    avoids the calls (Alg. 2 of the paper) is `block`, coin for coin.

    Settled by enumeration: so defined, the rule has TV 0 and reaches the overlap on every case
    tried. That needs the joint masses, uncapped, at every redrawn position, not only the first.

    Args:
        root: a chain whose tokens were drawn from q, grown by a drafter: nodes then know what lies
            `beyond` them.
        choose: the reading; the coin of a drafted node is addressed by it, and asked from the
            deepest node up until one accepts. The first redrawn token, or the bonus, is the
            terminal draw; a token redrawn behind others is addressed by the node it is drawn at.

    Returns:
        The accepted tokens, then the redrawn ones or the bonus.

    Raises:
        ValueError: a chain of two tokens or more that was built from rows.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import with_replacement
    >>> p, q = (lambda text: (F(1, 3), F(2, 3))), (lambda text: (F(2, 3), F(1, 3)))
    >>> out = law(lambda c: hierarchical(with_replacement(p, q, 2, c, ()), c))
    >>> [str(sum(m for text, m in out.items() if text[:2] == (0, x))) for x in range(2)]
    ['1/9', '2/9']
    >>> out[1, 1]
    Fraction(1, 3)
    """
    tokens: tuple[int, ...] = ()
    path: list[tuple[Node, Number, Number]] = [(root, 1, 1)]
    node = root
    while node.children:
        ((x, child),) = node.children
        _, target, draft = path[-1]
        tokens = (*tokens, x)
        path.append((child, target * node.p[x], draft * node.q[x]))
        node = child
    leaf, target, draft = path.pop()
    if len(path) > 1 and root.beyond is None:
        raise ValueError(
            "hierarchical redraws tokens behind tokens that were not drafted, and a draft built "
            "from rows does not hold their laws; grow it from models, with a drafter"
        )
    if leaf is root or choose.flip(min(1, target / draft), at=leaf):
        return (*tokens, choose(leaf.p))
    for kept in reversed(range(len(path))):
        node, target, draft = path[kept]
        p, q = _times(target, node.p), _times(draft, node.q)
        gain = sum(max(a - b, 0) for a, b in zip(p, q, strict=True))
        loss = sum(max(b - a, 0) for a, b in zip(p, q, strict=True))
        if node is root or choose.flip(gain / loss if gain < loss else 1, at=node):
            return tokens[:kept] + _redrawn(node, p, q, len(path) - kept, choose)
    raise AssertionError("unreachable: at the root gain and loss are one")


def _redrawn(node: Node, p: Law, q: Law, count: int, choose: Choose) -> tuple[int, ...]:
    """Draw `count` tokens, each from its own residual of joint masses.

    Args:
        node: where the first is drawn.
        p, q: joint masses of the text with each token that can follow `node`.
        count: how many.
        choose: the reading.
    """
    x = choose(excess(p, q))
    out: tuple[int, ...] = (x,)
    while len(out) < count:
        assert node.beyond is not None
        node = node.beyond(x)
        p, q = _times(p[x], node.p), _times(q[x], node.q)
        x = choose(excess(p, q), at=node)
        out = (*out, x)
    return out


def _times(mass: Number, row: Law) -> Law:
    return tuple(mass * w for w in row)
