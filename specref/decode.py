"""Many rounds: the decoding loop, its exact laws, and the theorem every lossless rule satisfies.

*Lossless*: draft, verify, let the target continue; the joint law of the first n tokens equals the
target's own joint law, for every n and any number of rounds, with stops as the target alone would
have them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from specref.choice import Choose, at_start, law
from specref.dist import Number, as_fraction, entries, tv, whole
from specref.draft import Node, Shape, depth, widths_of
from specref.model import Context, Model, exact_model, exact_pair
from specref.rules import RULES, Rule
from specref.stops import Stops, Text, as_stops, finite

Drafting: TypeAlias = Shape | Callable[[Text], Shape]
"""The shape of every draft, or a function from the emitted text to the shape of the next one."""

Loop: TypeAlias = Callable[..., Text]
"""A program with the arguments of `decode`."""


def decode(
    rule: str | Rule,
    p: Model,
    q: Model,
    shape: Drafting,
    stops: Stops | int,
    choose: Choose,
    context: Context = (),
) -> Text:
    """Draft and verify, round by round, until the text is finished; return the text.

    This is the loop itself, a program like any rule: `law` enumerates it, `Seeded` runs it, each
    round from its own start (the length of context and text before it).

    Args:
        rule: a name in `RULES` or a `Rule`.
        p, q: target and draft.
        shape: depth of a chain, or widths of a tree, or a function from the emitted text to either:
            it is asked before anything is drafted. Drafts that could not be emitted within
            `max_tokens` are not drawn; a round without drafts is one draw from the target.
        stops: when the text is finished; a number is a limit alone.
        choose: the reading.
        context: what stands before the text.

    >>> from specref.choice import Seeded
    >>> from specref.model import Table
    >>> p = Table({(): ["1/2", "3/10", "1/5"]}, order=0)
    >>> q = Table({(): ["1/5", "3/5", "1/5"]}, order=0)
    >>> decode("token", p, q, 2, Stops(max_tokens=9, eos=2), Seeded(1))
    (0, 2)

    Raises:
        KeyError: an unknown rule.
        ValueError: no model, a shape that the rule is not made for, stops that never come, or what
            `Stops.asked` refuses.
    """
    ends = as_stops(stops)
    if ends.max_tokens is None and not (ends.eos or ends.stop):
        raise ValueError("max_tokens = None, and neither eos nor stop, is no end; pass one of them")
    text: Text = ()
    for _, _, grown in rounds(rule, p, q, shape, ends, choose, context):
        text = grown
    return text


def rounds(
    rule: str | Rule,
    p: Model,
    q: Model,
    shape: Drafting,
    stops: Stops | int,
    choose: Choose,
    context: Context = (),
) -> Iterator[tuple[Node, Text, Text]]:
    """Yield every round of `decode`: its draft, what the rule emitted, and the text, cut, after it.

    Arguments and errors are those of `decode`.
    """
    entry, ends, start = find_rule(rule), as_stops(stops), entries(context, "context")
    check_model(p, "p")
    text: Text = ()
    while not ends.over(text):
        root, out = one_round(entry, p, q, shape, ends, choose, start, text)
        text = ends.cut(text + out, begun=len(text))
        yield root, out, text


def one_round(
    rule: Rule,
    p: Model,
    q: Model,
    shape: Drafting,
    stops: Stops,
    choose: Choose,
    context: Context,
    text: Text,
) -> tuple[Node, Text]:
    """Draft and verify once behind an unfinished text; return the draft and what is emitted.

    What is emitted may reach behind an end; see `Stops.ended` for what stands there. Arguments and
    errors are those of `decode`.
    """
    here = (*context, *text)
    widths = within(shape(text) if callable(shape) else shape, stops.left(text))
    check_shape(rule, widths)
    target = stops.ended(stops.asked(p, context), context, len(text))
    # Behind the last draft nothing is proposed: without drafts no rule reads a draft law.
    draft = target
    if depth(widths):
        check_model(q, "q")
        draft = stops.ended(q, context, len(text))
    draws = at_start(choose, len(here))
    root = rule.draft(target, draft, widths, draws, here)
    return root, rule.verify(root, draws)


def within(shape: Shape, left: int | None) -> Shape:
    """Return a shape cut to what may still be emitted: g drafts emit up to g + 1 tokens.

    Args:
        shape: depth of a chain, or widths of a tree.
        left: tokens that may be emitted, at least 1; None for no limit.

    >>> within(4, 3), within((2, 2), 2), within(4, None)
    (2, (2,), 4)
    """
    if isinstance(shape, Iterable):
        widths = widths_of(shape)
        return widths if left is None else widths[: left - 1]
    levels = whole(shape, "shape", "pass a depth >= 0, or a tuple of widths >= 1", 0)
    return levels if left is None else min(levels, left - 1)


def target_law(p: Model, stops: Stops | int, context: Context = ()) -> dict[Text, Number]:
    """Return the law of plain decoding: the target draws every token of the text itself.

    Args:
        p: target.
        stops: when a text is finished; a number is a limit alone.
        context: what stands before the text.

    >>> from specref.model import Table
    >>> p = Table({(): ["1/2", "1/2"]}, order=0)
    >>> for text, mass in target_law(p, Stops(max_tokens=2, eos=1)).items():
    ...     print(text, mass)
    (1,) 1/2
    (0, 0) 1/4
    (0, 1) 1/4
    """
    return complete({(): 1}, p, stops, context)


def complete(
    emitted: dict[Text, Number], p: Model, stops: Stops | int, context: Context = ()
) -> dict[Text, Number]:
    """Let the target continue every emitted text until it is finished; longer ones are cut.

    Args:
        emitted: mass by emitted text; any number of tokens each.
        p: target.
        stops: when a text is finished; a number of tokens is a limit alone.
        context: what stood before the emitted text.

    >>> from fractions import Fraction
    >>> half = Fraction(1, 2)
    >>> complete({(0,): half, (1, 1): half}, lambda context: (half, half), 2)
    {(1, 1): Fraction(1, 2), (0, 0): Fraction(1, 4), (0, 1): Fraction(1, 4)}

    Raises:
        ValueError: no model, stops without a limit, or what `Stops.asked` refuses.
    """
    ends = finite(stops)
    check_model(p, "p")
    target = ends.asked(p, context)

    def one_token(text: Text) -> Iterable[tuple[Text, Number]]:
        return [((x,), chance) for x, chance in enumerate(target((*context, *text))) if chance > 0]

    return _grown(emitted, ends, one_token)


def sequence_law(
    rule: str | Rule,
    p: Model,
    q: Model,
    shape: Drafting,
    stops: Stops | int,
    context: Context = (),
    *,
    loop: Loop = decode,
) -> dict[Text, Number]:
    """Return the exact law of whole sequences that a decoding loop emits.

    The rounds of `decode` are composed text by text: a round sees the text so far and nothing else
    of the rounds before it. Any other loop is enumerated whole, with all choices of all rounds. It
    is made of the numbers that the models return, as `round_law`.

    Args:
        rule, p, q, shape, stops, context: as for `decode`.
        loop: another loop; it is given a `Rule` and `Stops`.

    >>> from specref.model import Table
    >>> p, q = (Table({(): row}, order=0) for row in (["1/2", "1/2"], ["1/4", "3/4"]))
    >>> stops = Stops(max_tokens=4, eos=1)
    >>> sequence_law("token", p, q, 2, stops) == target_law(p, stops)
    True

    Raises:
        KeyError: an unknown rule.
        ValueError: stops without a limit, a shape that the rule is not made for, or what
            `Stops.asked` refuses.
    """
    entry, ends, start = find_rule(rule), finite(stops), entries(context, "context")
    target, draft = remembered(p, "p"), remembered(q, "q")
    if loop is not decode:
        return law(lambda choose: loop(entry, target, draft, shape, ends, choose, start))

    def next_round(text: Text) -> Iterable[tuple[Text, Number]]:
        def program(choose: Choose) -> Text:
            return one_round(entry, target, draft, shape, ends, choose, start, text)[1]

        return law(program).items()

    return _grown({(): 1}, ends, next_round)


def _grown(
    emitted: dict[Text, Number],
    stops: Stops,
    step: Callable[[Text], Iterable[tuple[Text, Number]]],
) -> dict[Text, Number]:
    """Let every text grow by steps until it is finished.

    Args:
        emitted: mass by text.
        stops: with a limit.
        step: from an unfinished text to (tokens behind it, at least one; their chance).
    """
    assert stops.max_tokens is not None
    done: defaultdict[Text, Number] = defaultdict(int)
    # By length, shortest first: a step adds tokens, so each text is met once, with all its mass.
    live: list[defaultdict[Text, Number]] = [defaultdict(int) for _ in range(stops.max_tokens)]

    def add(text: Text, mass: Number, begun: int) -> None:
        end = stops.end(text, begun)
        if end is None:
            live[len(text)][text] += mass
        else:
            done[text[:end]] += mass

    for text, mass in emitted.items():
        add(text, mass, 0)
    for short, texts in enumerate(live):
        for text, mass in texts.items():
            for more, chance in step(text):
                add(text + more, mass * chance, short)
    return dict(done)


def remembered(model: Model, name: str) -> Model:
    """Return `model` with its latest laws remembered by context.

    Raises:
        ValueError: no model; `name` says whose.
    """
    check_model(model, name)
    return lru_cache(maxsize=4096)(model)


def check_model(model: Model, name: str) -> None:
    """Refuse what is no callable; `name` says whose.

    Raises:
        ValueError: no model.
    """
    if not callable(model):
        raise ValueError(f"{name} = {model!r} is no model; pass a callable from a context to a law")


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


def check_shape(rule: Rule, shape: Shape, name: str = "shape") -> None:
    """Refuse a shape of drafts that a rule is not made for; `name` is what the caller calls it.

    Raises:
        ValueError: what the rule is made for.
    """
    widths = widths_of(shape)
    if rule.shape == "chain" and not rule.any_draft and max(widths, default=1) > 1:
        raise ValueError(
            f"{name} = {shape!r} is a tree, but {rule.name} verifies chains; pass a depth, or take "
            f"a tree rule: {', '.join(n for n, rule in RULES.items() if rule.shape == 'tree')}"
        )
    if rule.width is not None and max(widths, default=1) > rule.width:
        raise ValueError(
            f"{name} = {shape!r}, but {rule.name} verifies {rule.width} siblings at a node, or "
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
