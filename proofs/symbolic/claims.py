"""The forms of theorem: what is claimed of a rule, as quantities that have to vanish.

Models are rows of symbols, one law per context, so a claim holds for all models at its size. Rules
are run as they are shipped; nothing here knows how they decide.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from proofs.symbolic.reading import Raised, law
from proofs.symbolic.region import Outside, Region
from proofs.symbolic.search import Differences, Result, prove
from proofs.symbolic.symbols import Symbols
from specref.draft import Drafter, Node, Shape, depth, tree
from specref.model import Table

Text = tuple[int, ...]
Verify = Callable[[Node, Any], Text | None]
BEHIND = " behind a certain token"


@dataclass(frozen=True)
class Claim:
    """A theorem to be checked.

    Attributes:
        says: the statement in words.
        symbols: what it is about.
        differences: from a region to what has to vanish there.
        models: target and draft, where the claim is about a whole round.
    """

    says: str
    symbols: Symbols
    differences: Differences
    models: "Models | None" = None

    def check(self) -> Result:
        """Prove or refute it."""
        return prove(self.symbols, self.differences)


class Models:
    """Target and draft with a law of symbols after every context of up to `length` tokens.

    With `certain` both put mass 1 on token 0 at the root, and laws are symbols behind it alone. So
    little is left that a rule can be run on its second node: does it look at that node's laws?
    """

    def __init__(self, vocab: int, length: int, drafts: int = 1, certain: bool = False) -> None:
        """Declare laws p(context) up to `length` tokens, and `drafts` laws q of each before it."""
        self.vocab, self.length, self.drafts, self.certain = vocab, length, drafts, certain
        self.symbols = Symbols()
        self.sure = tuple(Fraction(int(x == 0)) for x in range(vocab))
        for context in self.contexts(length):
            if self.is_known(context):
                continue
            self.symbols.add_law(f"p{show(context)}", vocab)
            if len(context) < length:
                for k in range(drafts):
                    self.symbols.add_law(f"q{k if drafts > 1 else ''}{show(context)}", vocab)

    def contexts(self, longest: int) -> Iterable[Text]:
        """Yield all contexts of up to `longest` tokens."""
        for length in range(longest + 1):
            yield from itertools.product(range(self.vocab), repeat=length)

    def is_known(self, context: Text) -> bool:
        """Say whether the laws after a context are no symbols."""
        return self.certain and context[:1] != (0,)

    def tables(self, values: Mapping[str, Any]) -> tuple[Table, Table]:
        """Return target and draft at a point, the draft uniform where it is not asked."""
        texts = [*self.contexts(self.length)]
        known = {text: self.sure for text in texts if self.is_known(text)}
        even = [Fraction(1, self.vocab)] * self.vocab
        p = {text: values[f"p{show(text)}"] for text in texts if text not in known} | known
        q = {text: values.get(f"q{show(text)}", even) for text in texts} | known
        return Table(p, name="p"), Table(q, name="q")

    def on(self, region: Region) -> tuple[Callable[[Text], Any], Callable[[Text], Any]]:
        """Return the two models, of numbers on a region."""
        rows = {name: region.law(name) for name in self.symbols.laws}

        def p(context: Text) -> Any:
            return self.sure if self.is_known(context) else rows[f"p{show(context)}"]

        def q(context: Text) -> Any:
            if self.is_known(context):
                return self.sure if self.drafts == 1 else (self.sure,) * self.drafts
            if self.drafts == 1:
                return rows.get(f"q{show(context)}", ())
            return tuple(rows.get(f"q{k}{show(context)}", ()) for k in range(self.drafts))

        return p, q


def show(context: Text) -> str:
    """Return a context as a suffix of a name."""
    return "".join(map(str, context))


def named(verify: Any) -> str:
    """Return the name of a function, also of one with arguments filled in."""
    return str(getattr(getattr(verify, "func", verify), "__name__", verify))


def gaps(
    emitted: Mapping[Any, Any], p: Callable[[Text], Any], vocab: int, length: int, weight: Any = 1
) -> dict[Any, Any]:
    """Return what texts of `length` tokens lack of `weight` times the target's mass.

    Outcomes that are no such text, nor the beginning of one, must have no mass.

    Args:
        emitted: mass by emitted text, the target continues it; None is a refusal.
        p: the target.
        vocab: V.
        length: of the texts.
        weight: of the node that was verified.
    """
    out: dict[Any, Any] = {}
    for text in itertools.product(range(vocab), repeat=length):
        mass = weight
        for at, x in enumerate(text):
            mass = p(text[:at])[x] * mass
        out[text] = mass
    for short, mass in emitted.items():
        if short is None:
            out[short] = mass - (1 - weight)
            continue
        if isinstance(short, Raised) or len(short) > length or not {*short} <= {*range(vocab)}:
            out[short] = mass
            continue
        for more in itertools.product(range(vocab), repeat=length - len(short)):
            part, text = mass, (*short, *more)
            for at in range(len(short), length):
                part = part * p(text[:at])[text[at]]
            out[text] = out[text] - part
    return out


def lossless(
    verify: Verify,
    draft: Drafter,
    vocab: int,
    shape: Shape,
    drafts: int = 1,
    certain: bool = False,
) -> Claim:
    """Claim that a round with its drafter, continued by the target, has the target's law.

    Of all models, or of those whose first token is `certain`.
    """
    length = depth(shape)
    models = Models(vocab, length, drafts, certain)

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)
        emitted = law(lambda choose: verify(draft(p, q, shape, choose, ()), choose), region)
        return gaps(emitted, p, vocab, length + 1)

    says = f"{named(verify)}, V = {vocab}, shape {shape}{BEHIND * certain}: lossless"
    return Claim(says, models.symbols, differences, models)


def lossless_on(verify: Verify, vocab: int, tokens: Sequence[int], parents: Sequence[int]) -> Claim:
    """Claim the same of one draft, however it came about; no draft law exists."""
    texts: list[Text] = [()]
    for x, parent in zip(tokens, parents, strict=True):
        texts.append((*texts[parent], x))
    length = max(map(len, texts))
    models = Models(vocab, length)

    def differences(region: Region) -> dict[Any, Any]:
        p, _ = models.on(region)
        root = tree([p(text) for text in texts], [()] * len(texts), tokens, parents)
        return gaps(law(lambda choose: verify(root, choose), region), p, vocab, length + 1)

    says = f"{named(verify)}, V = {vocab}, draft {list(tokens)}: lossless"
    return Claim(says, models.symbols, differences)


def contract(
    verify: Callable[[Node, Any, Any], Text | None],
    draft: Drafter,
    vocab: int,
    width: int,
    drafts: int = 1,
) -> Claim:
    """Claim the contract of one node with children, for every weight r of it.

    The node is accepted with probability r, and its text then continues as the target's. The
    children are leaves, which keep the contract themselves: they stand for any tree that does.
    """
    models = Models(vocab, 1, drafts)
    models.symbols.add_number("r")

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)
        r = region.number("r")

        def program(choose: Any) -> Text | None:
            return verify(draft(p, q, (width,), choose, ()), r, choose)

        return gaps(law(program, region), p, vocab, 2, r)

    says = f"node of weight r, V = {vocab}, {width} children: contract"
    return Claim(says, models.symbols, differences)


def same(
    first: Verify,
    second: Verify,
    vocab: int,
    tokens: Sequence[int],
    parents: Sequence[int],
    drawn: bool = True,
) -> Claim:
    """Claim that two rules emit the same law on a draft; if `drawn`, one that q can draw.

    Rows of nodes are symbols of their own, so nothing ties the laws of different nodes together.
    """
    symbols = Symbols()
    inner = sorted({*parents})
    for node in range(len(tokens) + 1):
        symbols.add_law(f"p{node}", vocab)
        if drawn and node in inner:
            symbols.add_law(f"q{node}", vocab)

    def differences(region: Region) -> dict[Any, Any]:
        rows = {name: region.law(name) for name in symbols.laws}
        count = range(len(tokens) + 1)
        for x, parent in zip(tokens, parents, strict=True):
            if drawn and rows[f"q{parent}"][x] == 0:
                raise Outside
        root = tree(
            [rows[f"p{node}"] for node in count],
            [rows.get(f"q{node}", ()) for node in count],
            tokens,
            parents,
        )
        laws = [law(partial(verify, root), region) for verify in (first, second)]
        return {text: laws[0].get(text, 0) - laws[1].get(text, 0) for text in {*laws[0], *laws[1]}}

    both = f"{named(first)} and {named(second)}"
    says = f"{both}, V = {vocab}, draft {list(tokens)}: equal laws"
    return Claim(says, symbols, differences)
