"""Lenience: the token rule with a draft law that counts only l times in the test. Lossy."""

from fractions import Fraction

from specref.choice import Choose
from specref.dist import Number, excess, number, top
from specref.draft import Node


def lenient(
    root: Node, choose: Choose, lenience: Number = Fraction(1, 2), greedy: bool = False
) -> tuple[int, ...]:
    """Keep x with probability min(1, p(x) / (l q(x))) (Leviathan et al. 2023, appendix A.5).

    The test of `token` with l q in the place of q, l the lenience; a refusal is corrected from
    norm((p - q)+) as there, and the bonus is the target's. (The paper leaves the correction open;
    the other reading is `lenient_scaled`.) A draft is kept with probability sum_x min(p/l, q)
    instead of sum_x min(p, q), and the output leans towards q.

    What is given up: with R = sum_x (q - p/l)+ the chance of a refusal, the emitted token has law
    min(p/l, q) + R norm((p - q)+), and its total variation from p is TV(p, q) - R: l = 1 is `token`
    and loses nothing, l towards 0 emits q itself. What is kept: no token is emitted with more than
    p/l. Where p < q only the first term counts, and it is at most p/l; elsewhere the sum is
    q + R (p - q) / TV(p, q), and R <= TV(p, q) makes it at most p.

    A correction exists whenever it is needed: a refused x has p(x) < l q(x) <= q(x), so p and q
    differ and (p - q)+ is not empty.

    At temperature 0 the target is one-hot and l changes nothing. There the paper compares laws from
    before the temperature instead: x stays while p(x) >= l max p, everything else is the argmax.
    (It prints <=, which would keep the unlikely tokens and refuse the argmax.) That is
    `greedy=True`; it draws nothing, and l = 1 is the rule `greedy` up to ties.

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the coin of a drafted node is addressed by it.
        lenience: l, in 0 < l <= 1; a fraction keeps exact laws exact.
        greedy: the rule for temperature 0, on laws from before the temperature.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> law(lambda c: lenient(chain([p, p], [q, q], [2]), c)[:1])
    {(2,): Fraction(2, 3), (0,): Fraction(1, 3)}

    Raises:
        ValueError: a lenience outside 0 < lenience <= 1.
    """
    lenience = number(lenience, "lenience")
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience = {lenience} is outside 0 < lenience <= 1; 1 is lossless")
    if greedy:
        return _before_temperature(root, lenience)
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        if not choose.flip(min(1, node.p[x] / (lenience * node.q[x])), at=child):
            return (*out, choose(excess(node.p, node.q)))
        out, node = (*out, x), child
    return (*out, choose(node.p))


def _before_temperature(root: Node, lenience: Number) -> tuple[int, ...]:
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        if node.p[x] < lenience * max(node.p):
            break
        out, node = (*out, x), child
    return out + top(node.p, 1)
