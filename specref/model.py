"""Toy models: a model is any callable from a context (tuple of tokens) to a law over V tokens.

`Table` writes the laws down; `NGram` counts them from a text. Both are exact.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from specref.dist import Law, Number, as_law, integers, rational, whole

Context: TypeAlias = tuple[int, ...]
Model: TypeAlias = Callable[[Context], Law]


class Table:
    """A model written down as a table from context to law; zeros are allowed.

    Args:
        rows: law of the next token by context. Laws are read by `dist.as_law`.
        order: how many last tokens the law looks at; None means the whole context. Contexts shorter
            than `order` are looked up whole.
        name: what errors call this model ("target", "draft").

    >>> target = Table({(): ["1/2", "1/2"], (0,): [1, 0], (1,): ["1/4", "3/4"]}, order=1)
    >>> print(*target((0, 1)))
    1/4 3/4

    Raises:
        ValueError: no rows, a context that is no tuple, a row that is no law, rows of different
            length, or a negative order.
        LookupError: on a call, a context without a row.
    """

    def __init__(
        self,
        rows: Mapping[Context, Iterable[Number]],
        order: int | None = None,
        name: str = "model",
    ) -> None:
        if not rows:
            raise ValueError(f"{name} has no rows; give at least the law of the empty context ()")
        for context in rows:
            if not isinstance(context, tuple):
                raise ValueError(f"{name} has context {context!r}; write tuples of tokens, (0,)")
        if order is not None:
            order = whole(order, "order", "0 ignores the context", 0)
        self.rows = {context: as_law(row, f"{name}[{context}]") for context, row in rows.items()}
        self.order, self.name = order, name
        sizes = {len(row) for row in self.rows.values()}
        if len(sizes) > 1:
            raise ValueError(f"{name} has rows of {sorted(sizes)} tokens; all need the same number")
        self.vocab = sizes.pop()

    def __call__(self, context: Context) -> Law:
        whole = tuple(context)
        key = whole if self.order is None else whole[max(0, len(whole) - self.order) :]
        try:
            return self.rows[key]
        except KeyError:
            raise LookupError(
                f"{self.name} has no row for context {key}; add it, or pass order= to Table"
            ) from None


class NGram:
    """A model counted from a text: the law after a context is what followed it in the text.

    A context that was never continued backs off to its suffix. Laws are exact fractions.

    Args:
        text: tokens, each in 0 <= token < vocab.
        order: how many last tokens the law looks at.
        vocab: V; one more than the largest token if left out.

    >>> print(*NGram([0, 1, 0, 1, 0, 2], order=1)((0,)))
    0 2/3 1/3

    Raises:
        ValueError: an empty text, a negative order, tokens that are no integers or outside the
            vocabulary.
    """

    def __init__(self, text: Sequence[int], order: int, vocab: int | None = None) -> None:
        text = integers(text, "text")
        if not text:
            raise ValueError("text is empty; an n-gram model needs at least one token")
        self.order = order = whole(order, "order", "0 ignores the context", 0)
        size = max(0, *text) + 1 if vocab is None else vocab
        self.vocab = whole(size, "vocab", "pass the number of tokens", 1)
        if min(text) < 0 or max(text) >= self.vocab:
            raise ValueError(f"text has tokens outside 0 <= token < vocab = {self.vocab}")
        self._counts: defaultdict[Context, Counter[int]] = defaultdict(Counter)
        for at, token in enumerate(text):
            for length in range(min(order, at) + 1):
                self._counts[tuple(text[at - length : at])][token] += 1

    def __call__(self, context: Context) -> Law:
        for length in range(min(self.order, len(context)), -1, -1):
            counts = self._counts.get(tuple(context[len(context) - length :]))
            if counts:
                total = sum(counts.values())
                return tuple(rational(counts[x], total) for x in range(self.vocab))
        raise AssertionError("unreachable: a non-empty text has a law for the empty context")


def exact_pair(p: Model, q: Model, context: Context = ()) -> tuple[Model, Model]:
    """Return target and draft with their laws checked, made exact and remembered by context.

    Raises:
        ValueError: no models, laws over different tokens, or, on a call, what is no law.
    """
    target, draft = exact_model(p, "p"), exact_model(q, "q")
    sizes = len(target(context)), len(draft(context))
    if sizes[0] != sizes[1]:
        raise ValueError(f"p has {sizes[0]} tokens and q {sizes[1]}; pad the smaller")
    return target, draft


def exact_model(model: Model, name: str) -> Model:
    """Return `model` with its laws checked, made exact and remembered by context.

    Raises:
        ValueError: no model, or, on a call, what is no law; `name` says whose.
    """
    if not callable(model):
        raise ValueError(f"{name} = {model!r} is no model; pass a callable from a context to a law")
    known: dict[Context, Law] = {}

    def exact(context: Context) -> Law:
        context = tuple(context)
        if context not in known:
            row = as_law(model(context), f"{name}({context})")
            size = len(next(iter(known.values()), row))
            if len(row) != size:
                raise ValueError(f"{name}({context}) has {len(row)} tokens, other rows {size}")
            known[context] = row
        return known[context]

    return exact
