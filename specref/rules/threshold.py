"""Target-only verification with thresholds: siblings get more of the coin than p(x). Lossy."""

from fractions import Fraction

from specref.choice import Choose
from specref.dist import Number, normalise, number
from specref.draft import Node


def threshold(
    root: Node,
    choose: Choose,
    single: Number = Fraction(3, 4),
    acc: Number = Fraction(4, 5),
) -> tuple[int, ...]:
    """Loosen `target_only` by two thresholds (SGLang, tree_speculative_sampling_target_only).

    The siblings of a node are tried in order, with one coin for all of them and a running sum of
    their target probabilities. One is accepted if the coin falls below sum / acc, or if its own
    p(x) reaches `single`, whatever the coin says. If none is, the closing token is drawn from p
    with all of them zeroed. Behind the last accepted node p draws the bonus. At acc = single = 1
    this is `target_only`, draw for draw.

    What is given up: the first siblings get up to 1/acc times their mass, and a sibling that
    reaches `single` gets everything that those before it left; the rest of the vocabulary pays. So
    the law depends on which tokens were drafted and on their order. Where one sibling reaches
    `single`, or all together reach `acc`, no other token can come out. Tokens of target mass 0
    never do.

    SGLang's own defaults are 1 and 1, the lossless rule. The defaults here are mild examples, so
    that both thresholds have something to do. The kernel counts a repeated sibling's mass twice;
    here it counts once, as its first. The kernel accepts on coin <= sum / acc, here the coin must
    fall below: on coins that are real numbers the same law.

    Args:
        root: a tree with siblings of any origin.
        choose: the reading; the coin of a node is addressed by its first child, the draw among the
            rest is the terminal draw.
        single: target probability from which a draft is kept outright, 0 < single <= 1
            (SGLang's threshold_single).
        acc: what the running sum is divided by, 0 < acc <= 1 (SGLang's threshold_acc).

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p = (F(1, 2), F(3, 10), F(1, 5))
    >>> root = tree([p] * 3, [p] * 3, [2, 1], [0, 0])
    >>> law(lambda c: threshold(root, c, single=1, acc=F(1, 2))[:1])
    {(2,): Fraction(2, 5), (1,): Fraction(3, 5)}
    >>> law(lambda c: threshold(root, c, single=F(3, 10), acc=1)[:1])
    {(2,): Fraction(1, 5), (1,): Fraction(4, 5)}

    Raises:
        ValueError: a threshold outside its range.
    """
    single, acc = number(single, "single"), number(acc, "acc")
    for name, value in (("single", single), ("acc", acc)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} = {value} is outside 0 < {name} <= 1; 1 switches it off")
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        siblings: dict[int, Node] = {}
        for x, child in node.children:
            siblings.setdefault(x, child)
        rest = [w * 0 if x in siblings else w for x, w in enumerate(node.p)]
        covered, total, widths = 0, 0, []
        for x in siblings:
            total = total + node.p[x]
            upto = min(1, total / acc) if node.p[x] < single else 1
            widths.append(max(0, upto - covered))
            covered = max(covered, upto)
        # Floats: all tokens drafted, their sum may miss 1 while nothing is left to draw.
        refused = 1 - covered if sum(rest) > 0 else 0
        fell = choose((*widths, refused), at=node.children[0][1])
        if fell == len(siblings):
            return (*out, choose(normalise(rest)))
        x = list(siblings)[fell]
        out, node = (*out, x), siblings[x]
    return (*out, choose(node.p))
