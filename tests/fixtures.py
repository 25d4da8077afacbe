"""Laws and models that several tests share, and what is read off a rule on them.

`C4` and `I4` are those on which the effects of known faults were measured; V = 4. Both have
residuals with two unequal tokens at every position, so no fault hides behind a residual that has
only one. `I4` repeats one pair of laws: faults that take the wrong row vanish there.
"""

import itertools
from fractions import Fraction as F

from hypothesis import strategies as st

from specref.choice import law
from specref.decode import round_law
from specref.dist import Law, as_law, normalise, rational
from specref.draft import flat
from specref.model import Table
from specref.rules import RULES


def tenths(*weights: int) -> Law:
    """Return weights that sum to ten as a law."""
    return tuple(rational(w, 10) for w in weights)


C4 = (
    Table(
        {
            (): tenths(4, 3, 2, 1),
            (0,): tenths(1, 4, 2, 3),
            (1,): tenths(3, 1, 5, 1),
            (2,): tenths(2, 2, 1, 5),
            (3,): tenths(5, 1, 3, 1),
        },
        order=1,
        name="target",
    ),
    Table(
        {
            (): tenths(1, 1, 3, 5),
            (0,): tenths(3, 2, 4, 1),
            (1,): tenths(1, 5, 2, 2),
            (2,): tenths(4, 3, 2, 1),
            (3,): tenths(2, 4, 1, 3),
        },
        order=1,
        name="draft",
    ),
)
"""Target and draft whose laws depend on the last token."""

I4 = (
    Table({(): tenths(4, 3, 2, 1)}, order=0, name="target"),
    Table({(): tenths(1, 1, 3, 5)}, order=0, name="draft"),
)
"""Target and draft with the root laws of `C4` everywhere."""


def grid(vocab, parts):
    """Return every law over `vocab` tokens whose masses are multiples of 1/parts."""
    return [
        as_law([F(count, parts) for count in counts])
        for counts in itertools.product(range(parts + 1), repeat=vocab)
        if sum(counts) == parts
    ]


GRID = grid(3, 4)
"""Every law over three tokens in multiples of 1/4; many zeros."""

A = normalise([3, 2, 1]), normalise([1, 2, 3])
B = normalise([5, 3, 2]), normalise([1, 1, 3])
TOY2 = normalise([1, 2]), normalise([2, 1])
"""Standard pairs (p, q). The residual of `A` has one token, that of `B` two."""


def same(row):
    """Return the model that gives one law after every context."""
    return lambda context: row


def model(*rows):
    """Return a model that looks at the last token: first the root's row, then one per token."""
    contexts = [(), *((x,) for x in range(len(rows) - 1))]
    return Table({c: normalise(row) for c, row in zip(contexts, rows, strict=True)}, order=1)


# Contexts matter, no law has ties, no two rows are equal; tokens of mass 0 on either side.
P3 = model((5, 3, 2), (1, 4, 7), (6, 0, 1), (2, 9, 1))
Q3 = model((2, 1, 5), (3, 5, 0), (1, 2, 5), (7, 1, 2))
P4 = model((4, 3, 2, 1), (1, 4, 2, 3), (3, 1, 5, 0), (2, 4, 1, 6), (5, 1, 3, 2))
Q4 = model((1, 2, 3, 6), (3, 2, 4, 1), (1, 5, 2, 0), (4, 3, 2, 1), (2, 4, 1, 3))
SHARP3 = model((1, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
SHARP4 = model((1, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1))


def models(vocab, sharp=False):
    """Generate models that look at the last token; zeros are common."""
    if sharp:
        row = st.integers(0, vocab - 1).map(lambda y: tuple(int(x == y) for x in range(vocab)))
    else:
        row = st.tuples(*[st.integers(0, 6)] * vocab).filter(any)
    return st.tuples(*[row] * (vocab + 1)).map(lambda rows: model(*rows))


def drafts(rule, p, q, shape):
    """Return every draft that the drafter of a rule can propose, as (root, its probability)."""
    roots = {}

    def program(choose):
        root = rule.draft(p, q, shape, choose, ())
        roots[flat(root)] = root
        return flat(root)

    return [(roots[key], mass) for key, mass in law(program).items()]


def after(rule, root):
    """Return the exact law of the emitted tokens, given the draft."""
    return law(lambda choose: rule.verify(root, choose))


def expected_accepted(rule, p, q, shape):
    """Return E[tau], the mean number of accepted tokens, for laws that ignore the context."""
    out = round_law(RULES[rule] if isinstance(rule, str) else rule, same(p), same(q), shape)
    return sum((len(text) - 1) * mass for text, mass in out.items())
