"""Token verification: accept x with probability min(1, p(x)/q(x)), else correct from (p - q)+."""

from specref.choice import Choose
from specref.dist import excess
from specref.draft import Node


def token(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify a chain token by token (Leviathan et al. 2023, Alg. 1; Chen et al. 2023, Alg. 2).

    Why it is lossless: the draft x comes from q and is kept with min(1, p/q), so x is kept *and*
    emitted with mass q(x) min(1, p(x)/q(x)) = min(p(x), q(x)). What the target still lacks is
    p - min(p, q) = (p - q)+, and its total is exactly the chance of a rejection. So the correction
    is drawn from norm((p - q)+). Accepted tokens are independent of the coins to come, so the
    argument repeats at every position; behind the last one the target itself draws the bonus.

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the coin of a drafted node is addressed by it.

    Returns:
        The accepted tokens and one more: the correction or the bonus.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(5, 10), F(3, 10), F(2, 10)), (F(6, 10), F(1, 10), F(3, 10))
    >>> for out, mass in sorted(law(lambda c: token(chain([p, p], [q, q], [0]), c)).items()):
    ...     print(out, mass)
    (0, 0) 5/12
    (0, 1) 1/4
    (0, 2) 1/6
    (1,) 1/6
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        if not choose.flip(min(1, node.p[x] / node.q[x]), at=child):
            return (*out, choose(excess(node.p, node.q)))
        out, node = (*out, x), child
    return (*out, choose(node.p))
