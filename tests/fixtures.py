"""The two fixtures on which the effects of known faults were measured; V = 4.

Both have residuals with two unequal tokens at every position, so no fault hides behind a residual
that has only one. `I4` repeats one pair of laws: faults that take the wrong row vanish there.
"""

from specref.dist import Law, rational
from specref.model import Table


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
