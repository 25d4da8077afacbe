"""Rules side by side on one pair of laws: what each accepts, emits and loses."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from specref.decode import check_shape, deviation, find_rule
from specref.dist import Law, as_fraction, as_law, rational, top
from specref.draft import Drafter, Shape, depth
from specref.model import Context, Model, Table
from specref.oracle import lengths, optimal_length


def constant(law: str, name: str) -> Model:
    """Return the model that has one law after every context, from a text such as 1/2,3/10,1/5.

    Raises:
        ValueError: no law; `name` says which.
    """
    return Table({(): as_law(law.split(","), name)}, order=0)


def sharpened(p: Model) -> Model:
    """Return the model that is certain of p's likeliest token: temperature 0."""

    def certain(context: Context) -> Law:
        row = p(context)
        (likeliest,) = top(row, 1)
        return tuple(rational(int(x == likeliest)) for x in range(len(row)))

    return certain


STANDARD = constant("1/2,3/10,1/5", "p"), constant("1/5,1/5,3/5", "q")
"""A pair whose residual has two tokens: p and q."""


class Standing(NamedTuple):
    """What a rule achieves with its own drafter.

    Attributes:
        rule: its name.
        acceptance: chance that at least one drafted token is accepted; None for a rule that redraws
            tokens, because what it emits does not tell.
        emitted: expected tokens per round.
        optimum: expected tokens per round of the best lossless verifier of the same drafts that
            leaves the target of later tokens alone (a linear program, in floats).
        tv: distance of the law of the first gamma + 1 tokens from the target's.
    """

    rule: str
    acceptance: Fraction | None
    emitted: Fraction
    optimum: float
    tv: Fraction

    @property
    def share(self) -> float:
        """Share of the optimum; above 1 for rules that are lossy, or that redraw tokens."""
        return float(self.emitted) / self.optimum


def compare(rules: Iterable[str], p: Model, q: Model, shape: Shape) -> Iterator[Standing]:
    """Yield the standing of each rule on drafts of one shape.

    All drafts are enumerated, and all ways to verify them: for small vocabularies and shapes.

    Args:
        rules: names in `RULES`.
        p, q: callables from a context to an exact law.
        shape: depth of a chain, or widths of a tree.

    Raises:
        KeyError: an unknown rule.
        ValueError: a shape that a rule is not made for.
    """
    entries = [find_rule(rule) for rule in rules]
    for entry in entries:
        check_shape(entry, shape)
    best: dict[Drafter, float] = {}
    for entry in entries:
        if entry.draft not in best:
            best[entry.draft] = optimal_length(p, q, shape=shape, draft=entry.draft)
        found = lengths(entry, p, q, shape=shape)
        yield Standing(
            entry.name,
            None if entry.off_path else as_fraction(1 - found.law.get(1, 0)),
            as_fraction(found.expected),
            best[entry.draft],
            deviation(entry, p, q, shape=shape, length=depth(shape) + 1),
        )
