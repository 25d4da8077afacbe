"""The honest loop of rounds with its parts exchangeable, and draws that several choices share.

A wrong loop says only what it changes: it is one part, and `exchanging` makes a loop of it that has
the arguments of `decode.decode`. What it does not change is done as `decode` does it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from specref.choice import Choose, Proposal, at_start
from specref.decode import Drafting, Loop, check_shape, find_rule, within
from specref.dist import Law, Number
from specref.draft import Node, Shape, depth, flat
from specref.model import Context, Model
from specref.rules import Rule
from specref.stops import Stops, Text, as_stops


@dataclass(frozen=True)
class Round:
    """What a round starts from.

    Attributes:
        rule, p, q, shape, stops, choose, context: the arguments of the loop.
        text: what was emitted so far.
        past: draft and verified tokens of every round so far.
        known: bounds of uniforms that were read, by name; shared by all rounds of a run.
    """

    rule: Rule
    p: Model
    q: Model
    shape: Drafting
    stops: Stops
    choose: Choose
    context: Context
    text: Text = ()
    past: tuple[tuple[Node, Text], ...] = ()
    known: dict[Any, tuple[Number, Number]] = field(default_factory=dict)

    @property
    def here(self) -> Context:
        """The text behind which the round drafts."""
        return (*self.context, *self.text)

    @property
    def asked_shape(self) -> Shape:
        """The shape that is asked for, whatever room is left."""
        return self.shape(self.text) if callable(self.shape) else self.shape


def widths(now: Round) -> Shape:
    """Return the shape of the draft: what is asked for, cut to what may still be emitted."""
    most = now.stops.max_tokens  # not `Stops.left`: a wrong loop goes on behind ends
    return within(now.asked_shape, None if most is None else most - len(now.text))


def target(now: Round) -> Model:
    """Return the target that fills the rows of the round."""
    return now.p


def draft(now: Round) -> Model:
    """Return the draft model that proposes."""
    return now.q


def masked(now: Round, model: Model) -> Model:
    """Return a target as `min_tokens` masks it."""
    return now.stops.asked(model, now.context)


def until_end(now: Round, model: Model) -> Model:
    """Return a model that is not asked behind an end."""
    return now.stops.ended(model, now.context, len(now.text))


def draws(now: Round) -> Choose:
    """Return the reading of the round."""
    return at_start(now.choose, len(now.here))


def submitted(now: Round, root: Node) -> Node:
    """Return the draft that is verified."""
    return root


def emitted(now: Round, root: Node, out: Text) -> Text:
    """Return what is added to the text, at least one token, from what the rule gave."""
    return out


def end(now: Round, text: Text) -> int | None:
    """Return where the text ends, None if it goes on."""
    return now.stops.end(text, len(now.text))


HONEST: dict[str, Callable[..., Any]] = {
    part.__name__: part
    for part in (widths, target, draft, masked, until_end, draws, submitted, emitted, end)
}
"""The parts of the loop by name."""


def run(
    parts: dict[str, Callable[..., Any]],
    rule: str | Rule,
    p: Model,
    q: Model,
    shape: Drafting,
    stops: Stops | int,
    choose: Choose,
    context: Context = (),
) -> Text:
    """Decode as `decode.decode` does, with parts exchanged.

    Args:
        parts: by the names in `HONEST`; those that are missing are honest.
        rule, p, q, shape, stops, choose, context: as for `decode`.
    """
    do = SimpleNamespace(**HONEST | parts)
    now = Round(find_rule(rule), p, q, shape, as_stops(stops), choose, tuple(context))
    if now.stops.over(()):
        return ()
    while True:
        wide = do.widths(now)
        check_shape(now.rule, wide)
        model = do.until_end(now, do.masked(now, do.target(now)))
        # Behind the last draft nothing is proposed: without drafts no rule reads a draft law.
        proposer = do.until_end(now, do.draft(now)) if depth(wide) else model
        reading = do.draws(now)
        root = do.submitted(now, now.rule.draft(model, proposer, wide, reading, now.here))
        out = now.rule.verify(root, reading)
        text: Text = now.text + do.emitted(now, root, out)
        length: int | None = do.end(now, text)
        if length is not None:
            return text[:length]
        now = replace(now, text=text, past=(*now.past, (root, out)))


def exchanging(part: str, **others: Callable[..., Any]) -> Callable[[Callable[..., Any]], Loop]:
    """Return what makes a loop of one part of it.

    Args:
        part: the name in `HONEST` of the part that is decorated.
        others: further parts that go with it.
    """

    def make(wrong: Callable[..., Any]) -> Loop:
        parts = {part: wrong, **others}

        def loop(
            rule: str | Rule,
            p: Model,
            q: Model,
            shape: Drafting,
            stops: Stops | int,
            choose: Choose,
            context: Context = (),
        ) -> Text:
            return run(parts, rule, p, q, shape, stops, choose, context)

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(loop, name, getattr(wrong, name))
        return loop

    return make


def past_end(now: Round, model: Model) -> Model:
    """Return a model that is asked behind an end too."""
    return model


def moved(model: Model, here: Context, seen: Context) -> Model:
    """Return a model to which the text `here` looks like `seen`; what is behind stays behind."""
    return lambda context: model((*seen, *context[len(here) :]))


def with_rows(
    root: Node,
    here: Context,
    p: Callable[[Node, Context], Law] = lambda node, text: node.p,
    q: Callable[[Node, Context], Law] = lambda node, text: node.q,
) -> Node:
    """Return the draft behind `here` with other rows, from each node and its text.

    A q row that cannot have drawn what was drafted from it is not taken: no rule is for that.
    """
    below = tuple((x, with_rows(child, (*here, x), p, q)) for x, child in root.children)
    row = q(root, here)
    possible = all(row[x] > 0 for x, _ in root.children)
    return Node(p(root, here), row if possible else root.q, below, root.index)


def drafted(root: Node) -> Text:
    """Return the tokens of a draft in the order of their nodes."""
    return flat(root)[0]


class Shared:
    """The reading in which choices of one name read one uniform.

    All that a choice tells of its uniform is in which piece of the inverse CDF it lies. So the
    pieces of the next one are weighed within the bounds that are known, which keeps laws exact.

    Args:
        choose: answers what the uniform is found to be.
        known: bounds of the uniforms that were read, by name.
        name: from the address of a choice, and the index of the node that was refused last, if any,
            to the name of the uniform.

    >>> from fractions import Fraction
    >>> from specref.choice import law
    >>> def program(choose):
    ...     both = Shared(choose, {}, lambda at, refused: "one for all")
    ...     return both.flip(Fraction(1, 2)), both.flip(Fraction(1, 4))
    >>> law(program)[True, True]
    Fraction(1, 4)
    """

    def __init__(
        self,
        choose: Choose,
        known: dict[Any, tuple[Number, Number]],
        name: Callable[[Any, int | None], Any],
    ) -> None:
        self.inner, self.known, self.name = choose, known, name
        self.refused: int | None = None

    def __call__(self, weights: Any, at: Any = None) -> int:
        name = self.name(at, self.refused)
        low, high = self.known.get(name, (0, 1))
        pieces = [(max(low, a), min(high, b)) for a, b in cumulated(weights)]

        def share(a: Number, b: Number) -> Number:
            """Return the part of the bounds that a piece is; ends are not divided, nor integers."""
            return 0 if a >= b else 1 if (a, b) == (low, high) else (b - a) / (high - low)

        x = self.inner([share(*piece) for piece in pieces], at)
        self.known[name] = pieces[x]
        return x

    def flip(self, chance: Number, at: Any = None) -> bool:
        accepted = self((chance, 1 - chance), at) == 0
        if not accepted and at is not None:
            self.refused = at.index
        return accepted


def cumulated(weights: Sequence[Number]) -> list[tuple[Number, Number]]:
    """Return the piece of [0, 1) on which the inverse CDF gives each token."""
    last = max(x for x, w in enumerate(weights) if w > 0)
    pieces: list[tuple[Number, Number]] = []
    total: Number = 0
    for x, w in enumerate(weights):
        upper = total + w
        pieces.append((total, 1 if x == last else upper))
        total = upper
    return pieces


def kind(at: Any) -> str:
    """Return what the choice at an address decides."""
    return "terminal" if at is None else "proposal" if isinstance(at, Proposal) else "coin"
