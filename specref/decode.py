"""Many rounds: decoding programs, their exact laws, and the theorem every lossless rule satisfies.

*Lossless*: draft, verify, let the target continue; the joint law of the first n tokens equals the
target's own joint law, for every n and any number of rounds.
"""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from specref.choice import Choose, Seeded, Trace, Uniforms, at_start, law
from specref.dist import (
    Law,
    Number,
    as_fraction,
    entries,
    exact_row,
    integers,
    normalise,
    rational,
    tv,
    whole,
)
from specref.draft import Node, Shape, tree, widths_of, without_replacement
from specref.model import Context, Model, exact_model, exact_pair
from specref.rules import RULES, Rule

Text = tuple[int, ...]


def decode(
    rule: Rule, p: Model, q: Model, shape: Shape, length: int, choose: Choose, context: Context = ()
) -> Text:
    """Draft and verify until at least `length` tokens are emitted; return the first `length`.

    This is the loop itself, a program like any rule: `law` enumerates it, `Seeded` runs it, each
    round from its own start (the length of context and text before it).
    """
    text: Text = ()
    while len(text) < length:
        here = tuple(context) + text
        draws = at_start(choose, len(here))
        text += rule.verify(rule.draft(p, q, shape, draws, here), draws)
    return text[:length]


def target_law(p: Model, length: int, context: Context = ()) -> dict[Text, Number]:
    """Return the target's own joint law of the next `length` tokens."""
    return complete({(): 1}, p, length, context)


def complete(
    emitted: dict[Text, Number], p: Model, length: int, context: Context = ()
) -> dict[Text, Number]:
    """Let the target continue every emitted text to `length` tokens; longer ones are cut there.

    Args:
        emitted: mass by emitted text; any number of tokens each.
        p: target.
        length: tokens to compare.
        context: what stood before the emitted text.

    >>> from fractions import Fraction
    >>> half = Fraction(1, 2)
    >>> complete({(0,): half, (1, 1): half}, lambda context: (half, half), 2)
    {(1, 1): Fraction(1, 2), (0, 0): Fraction(1, 4), (0, 1): Fraction(1, 4)}
    """
    out: defaultdict[Text, Number] = defaultdict(int)
    for text, mass in emitted.items():
        out[text[:length]] += mass
    for short in range(length):
        for text in [text for text in out if len(text) == short]:
            mass = out.pop(text)
            for x, chance in enumerate(p((*context, *text))):
                if chance > 0:
                    out[(*text, x)] += mass * chance
    return dict(out)


def round_law(
    rule: Rule, p: Model, q: Model, shape: Shape, context: Context = ()
) -> dict[Text, Number]:
    """Return the law of the tokens emitted by one round after `context`.

    It is made of the numbers that the models return: exact where these are fractions. (A quotient
    of two integers is a float; `dist.rational` and `model.Table` make fractions of them.)
    """
    return law(lambda choose: rule.verify(rule.draft(p, q, shape, choose, context), choose))


def output_law(
    rule: Rule,
    p: Model,
    q: Model,
    *,
    shape: Shape,
    length: int,
    rounds: int = 1,
    context: Context = (),
    target: Model | None = None,
) -> dict[Text, Number]:
    """Return the exact joint law of the first `length` tokens: `rounds` rounds, then the target.

    Rounds are composed text by text, which is exact because a round sees the text so far and
    nothing else of the rounds before it.
    """
    live: dict[Text, Number] = {(): 1}
    for _ in range(rounds):
        grown: defaultdict[Text, Number] = defaultdict(int)
        for text, mass in live.items():
            if len(text) >= length:
                grown[text] += mass
                continue
            for out, chance in round_law(rule, p, q, shape, (*context, *text)).items():
                grown[(text + out)[:length]] += mass * chance
        live = dict(grown)
    return complete(live, p if target is None else target, length, context)


def deviation(
    rule: str | Rule,
    p: Model,
    q: Model,
    *,
    shape: Shape,
    length: int,
    rounds: int = 1,
    target: Model | None = None,
) -> Fraction:
    """Return the exact TV between the law of the first `length` tokens and the target's own.

    Args:
        rule: a name in `RULES` or a `Rule`.
        p, q: target and draft, callables from a context to a law; read by `dist.as_law`, once for
            each context.
        shape: depth of a chain, or widths of a tree; several drafts at one position are a tree of
            one level.
        length: tokens compared.
        rounds: rounds of draft-and-verify before the target continues alone.
        target: the law that was asked for, where it is not the p that the rule is given (a filter
            that reaches only part of the rows, say); it is compared with, and it continues.

    >>> from specref.model import Table
    >>> p = Table({(): ["1/2", "3/10", "1/5"]}, order=0)
    >>> q = Table({(): ["1/5", "1/5", "3/5"]}, order=0)
    >>> deviation("token", p, q, shape=2, length=3)
    Fraction(0, 1)

    Raises:
        KeyError: an unknown rule.
        ValueError: a length or a number of rounds below one, a shape that the rule is not for, or
            models that do not return laws over the same tokens.
    """
    entry = find_rule(rule)
    length = whole(length, "length", "compare at least 1 token", 1)
    rounds = whole(rounds, "rounds", "run at least 1", 1)
    check_shape(entry, shape)
    given, drafter = exact_pair(p, q)
    asked = given if target is None else exact_model(target, "target")
    live = output_law(
        entry, given, drafter, shape=shape, length=length, rounds=rounds, target=asked
    )
    return as_fraction(tv(live, target_law(asked, length)))


def check_shape(rule: Rule, shape: Shape) -> None:
    """Refuse a shape of drafts that a rule is not made for.

    Raises:
        ValueError: what the rule is made for.
    """
    widths = widths_of(shape)
    if rule.shape == "chain" and not rule.any_draft and max(widths, default=1) > 1:
        raise ValueError(
            f"shape = {shape!r} is a tree, but {rule.name} verifies chains; pass a depth, or take "
            f"a tree rule: {', '.join(n for n, rule in RULES.items() if rule.shape == 'tree')}"
        )
    if rule.width is not None and max(widths, default=1) > rule.width:
        raise ValueError(
            f"shape = {shape!r}, but {rule.name} verifies {rule.width} siblings at a node, or "
            f"fewer; pass widths up to {rule.width}"
        )


def lossless(
    rule: str | Rule, p: Model, q: Model, *, shape: Shape, length: int, rounds: int = 1
) -> bool:
    """Whether `deviation` is exactly zero."""
    return bool(deviation(rule, p, q, shape=shape, length=length, rounds=rounds) == 0)


def find_rule(rule: str | Rule) -> Rule:
    """Return the registered rule of that name, or the rule itself."""
    if isinstance(rule, Rule):
        return rule
    if not isinstance(rule, str) or rule not in RULES:
        raise KeyError(f"there is no rule {rule!r}; rules are {', '.join(RULES)}")
    return RULES[rule]


class Round(NamedTuple):
    """What one round did: emitted tokens, how many of them were drafted, and each step taken."""

    emitted: Text
    accepted: int
    root: Node
    trace: Trace


def verify(
    rule: str | Rule,
    p_rows: Sequence[Sequence[Number]],
    q_rows: Sequence[Sequence[Number]],
    drafts: Sequence[int],
    parents: Sequence[int] | None = None,
    *,
    uniforms: Sequence[Number] | None = None,
    seed: int | None = None,
    start: int = 0,
) -> Round:
    """Run one round of a rule on given laws and drafts: the importable reference sampler.

    Args:
        rule: a name in `RULES` or a `Rule`.
        p_rows: target laws [drafts + 1][V], row 0 at the root; numbers, "3/10" or floats.
            Floats count at their exact binary value, and each row is divided by its exact sum,
            which must lie within 2^-7 of one (what a bfloat16 softmax can be off).
        q_rows: draft laws, one row per node that has children: [drafts + 1][V], and a chain may
            leave out the last.
        drafts: tokens of the nodes 1, 2, ...
        parents: index of each node's parent (0 is the root); left out for a chain.
        uniforms: [drafts + 1] draws in [0, 1): the coin of each drafted node, then the terminal.
        seed, start: instead of `uniforms`, draws addressed by a seed and the start of the round.

    >>> p, q = ["1/2", "3/10", "1/5"], ["3/5", "1/10", "3/10"]
    >>> verify("token", [p] * 4, [q] * 3, [0, 2, 1], uniforms=[0.7, 0.9, 0.2, 0.2]).emitted
    (0, 1)

    Raises:
        KeyError: an unknown rule.
        ValueError: rows that are no laws, sizes that do not fit, tokens outside the vocabulary, a
            draft law that is zero at a token drafted from it, equal siblings for a rule whose
            siblings are drawn without replacement, or not exactly one source of draws.
    """
    entry = find_rule(rule)
    drafts = integers(drafts, "drafts")
    up = list(range(len(drafts))) if parents is None else integers(parents, "parents")
    is_chain = up == list(range(len(drafts)))
    laws = [_row(row, f"p_rows[{at}]") for at, row in enumerate(entries(p_rows, "p_rows"))]
    if not laws:
        raise ValueError("p_rows is empty; pass one target row per drafted token and one more")
    proposals = [_row(row, f"q_rows[{at}]") for at, row in enumerate(entries(q_rows, "q_rows"))]
    if is_chain and len(proposals) == len(drafts):
        proposals.append(laws[-1])  # a leaf proposes nothing; no rule reads this row
    for name, rows in (("p_rows", laws), ("q_rows", proposals)):
        for at, row in enumerate(rows):
            if len(row) != len(laws[0]):
                raise ValueError(f"{name}[{at}] has {len(row)} tokens, p_rows[0] {len(laws[0])}")
    root = tree(laws, proposals, drafts, up)
    if entry.drafts_from_q:
        for at, (x, parent) in enumerate(zip(drafts, up, strict=True)):
            if proposals[parent][x] == 0:
                raise ValueError(
                    f"q_rows[{parent}][{x}] = 0, so drafts[{at}] = {x} cannot have been drawn from "
                    "it; pass the law that the drafts were drawn from"
                )
    if entry.draft is without_replacement and len({*zip(up, drafts, strict=True)}) < len(drafts):
        raise ValueError(f"{entry.name} needs siblings drawn without replacement; some are equal")
    if entry.off_path:
        raise ValueError(
            f"{entry.name} calls the models behind tokens that were not drafted, and rows do not "
            "hold these laws; run rule.verify on a root that a drafter has grown from models"
        )
    if entry.shape == "chain" and not is_chain:
        raise ValueError(f"{entry.name} verifies chains; leave parents out, or use a tree rule")
    if (uniforms is None) == (seed is None):
        raise ValueError("pass either uniforms= or seed=")
    reading: Uniforms
    if seed is not None:
        begin = whole(start, "start", "pass the number of tokens before the round")
        reading = Seeded(whole(seed, "seed", "pass a number"), begin)
    else:
        assert uniforms is not None
        draws = exact_row(uniforms, "uniforms")
        if len(draws) != len(drafts) + 1:
            raise ValueError(
                f"uniforms has {len(draws)} draws; {len(drafts)} drafts need {len(drafts) + 1}: "
                "a coin for each and the terminal draw"
            )
        reading = Uniforms(draws)
    trace = Trace(reading)
    emitted = entry.verify(root, trace)
    return Round(emitted, len(emitted) - 1, root, trace)


def _row(row: Sequence[Number], name: str) -> Law:
    exact = exact_row(row, name)
    for x, w in enumerate(exact):
        if w < 0:
            raise ValueError(f"{name}[{x}] = {w} is negative; laws have entries >= 0")
    total = sum(exact)
    # A bfloat16 softmax is off by no more than two roundings: the exponential and the division.
    if not exact or abs(total - 1) > rational(2, 256):
        raise ValueError(f"{name} sums to {float(total)}, not 1; pass probabilities, not logits")
    return normalise(exact)
