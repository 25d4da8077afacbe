"""Block verification: test the whole draft first, then ever shorter beginnings of it."""

from specref.choice import Choose
from specref.dist import Number, normalise
from specref.draft import Node


def block(root: Node, choose: Choose) -> tuple[int, ...]:
    """Keep the longest beginning of a chain whose coin accepts (Sun et al. 2024, Alg. 2).

    `token` gives up at the first refusal, and forgets how much likelier than needed the tokens
    before it were. Here a chain is weighed as one block. The weight of its first i tokens is

        P_0 = 1,    P_i = min(1, P_{i-1} p(x_i) / q(x_i)),

    where p and q stand at the node before x_i.

    Why it is lossless. The invariant: *given the first i tokens, averaged over those behind them,
    i or more are accepted with probability P_i.* At the last token this is its coin. Before it,
    v follows with q(v) and is accepted with min(1, P_i p(v)/q(v)), so some token is accepted behind
    the first i with probability sum_v min(q, P_i p), which falls short of P_i by S_i = sum(w_i),
    w_i = (P_i p - q)+. The coin of node i is asked only if nothing behind it was accepted, hence

        h_i = S_i / (S_i + 1 - P_i)

    makes up for exactly S_i; it is spent on w_i, normalised. So behind the first i tokens v is
    emitted with min(q, P_i p) + w_i = P_i p(v), as the target wants. At the root P_0 = 1 and
    nothing is left to refuse. If P_i = 1, nothing may be refused there either: h_i = 1, also when
    p = q makes it 0/0.

    The mean of accepted tokens is sum_i E[P_i], drafts drawn from q; no rule that leaves later
    targets alone accepts more of a chain. With one draft, and with certain drafts, it is `token`.

    The residual is w_i, not (p - q)+; the coin is held to h_i, not to P_i; a refusal goes on to the
    next shorter beginning and does not end the round. Each of these is easy to get wrong.

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the coin of a drafted node is addressed by it, and asked from the
            deepest node up until one accepts.

    Returns:
        The accepted tokens and one more: the correction or the bonus.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> for out, mass in sorted(law(lambda c: block(chain([p] * 3, [q] * 3, [2, 0]), c)).items()):
    ...     print(out, mass)
    (0,) 1/8
    (1,) 1/24
    (2, 0, 0) 5/12
    (2, 0, 1) 1/4
    (2, 0, 2) 1/6
    """
    tokens: tuple[int, ...] = ()
    path: list[tuple[Node, Number]] = [(root, 1)]
    node = root
    while node.children:
        ((x, child),) = node.children
        tokens = (*tokens, x)
        path.append((child, min(1, path[-1][1] * node.p[x] / node.q[x])))
        node = child
    leaf, weight = path.pop()
    if leaf is root or choose.flip(weight, at=leaf):
        return (*tokens, choose(leaf.p))
    for kept in reversed(range(len(path))):
        node, weight = path[kept]
        wanted = [max(weight * a - b, 0) for a, b in zip(node.p, node.q, strict=True)]
        spare = sum(wanted)
        chance = 1 if weight == 1 else spare / (spare + (1 - weight))
        if node is root or choose.flip(chance, at=node):
            return (*tokens[:kept], choose(normalise(wanted)))
    raise AssertionError("unreachable: at the root nothing is left to refuse")
