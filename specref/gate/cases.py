"""Cases: the drafts and laws that a subject is asked to verify, smallest first.

A `Fixture` is a pair of toy models and a shape of draft; a `Case` is one draft from it, with the
laws along its nodes as float32 numbers. The reference law is that of the numbers as handed over:
each is an exact rational, each row is divided by its exact sum.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from specref.choice import law
from specref.dist import Law, as_fraction, normalise, rational
from specref.draft import Drafter, Node, Shape, depth, flat, nodes, tree
from specref.model import Context

Floats = tuple[float, ...]

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative rounding error of one operation."""


@dataclass(frozen=True)
class Case:
    """One draft with the laws along it.

    Attributes:
        p, q: float32 numbers [nodes][V]; row 0 is the root's. Leaves have q rows too.
        tokens: drafted tokens of the nodes 1, 2, ...
        parents: index of each one's parent.
        rule: the rule that the subject is held to, or None.
        shape: "chain" or "tree"; a tree may happen to have one child per node.
        made_from: float32 (p, q) logits [nodes][V] that p and q are the softmax of, for cases made
            from logits.
        handed: types that laws were handed over in.
        watched: what was handed over last, each with a copy.
    """

    p: tuple[Floats, ...]
    q: tuple[Floats, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    rule: str | None = None
    shape: str = "chain"
    made_from: tuple[tuple[Floats, ...], tuple[Floats, ...]] | None = None
    handed: set[str] = field(default_factory=set, compare=False, repr=False)
    watched: list[tuple[Any, Any]] = field(default_factory=list, compare=False, repr=False)

    @property
    def vocab(self) -> int:
        """V."""
        return len(self.p[0])

    @property
    def chain(self) -> bool:
        """Whether the case is handed over as a chain."""
        return self.shape == "chain"

    @cached_property
    def gamma(self) -> int:
        """Largest number of tokens a round can accept: the depth of the draft."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return max(depths)

    def arrays(self, n: int = 1) -> tuple[Any, ...]:
        """Return NumPy arrays tiled to n rows, laws in float64.

        Chains: p [n, gamma+1, V], q [n, gamma, V], x [n, gamma].
        Trees: p and q [n, nodes, V], tokens and parents [n, nodes], both -1 at the root (node 0).
        """
        self.handed.add("float64")
        return self._watch(self._tiled(n))

    def tensors(self, n: int = 1, dtype: str = "float32", device: str = "cpu") -> tuple[Any, ...]:
        """Return `arrays(n)` as torch tensors, laws in `dtype`, tokens in int64."""
        import torch

        name = str(dtype).removeprefix("torch.")
        if name not in UNIT:
            raise ValueError(f"dtype = {dtype!r}; use one of {', '.join(UNIT)}")
        self.handed.add(name)
        kinds = {"f": getattr(torch, name), "i": torch.int64}
        arrays = self._tiled(n)
        return self._watch(
            tuple(torch.from_numpy(a).to(kinds[a.dtype.kind]).to(device) for a in arrays)
        )

    def logits(self, n: int = 1, dtype: str = "float32", device: str = "cpu") -> tuple[Any, ...]:
        """Return (p logits, q logits, tokens ...) as torch tensors; shapes as in `tensors`.

        Where the case was made from logits these are they; elsewhere they are the logarithms of the
        laws, -inf for a token of mass 0.
        """
        import torch

        rows = self.made_from or (_logs(self.p), _logs(self.q))
        laws = [torch.from_numpy(self._tile(np.array(r, np.float32), n)) for r in rows]
        if self.chain:
            laws[1] = laws[1][:, :-1]
        rest = self.tensors(n, dtype, device)[2:]
        kind = getattr(torch, str(dtype).removeprefix("torch."))
        return self._watch((*(a.contiguous().to(kind).to(device) for a in laws), *rest))

    def _watch(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        self.watched[:] = [(a, a + 0) for a in given]
        return given

    def changed(self) -> bool:
        """Whether what was handed over last has been written to since."""
        return any(bool((now != before).any()) for now, before in self.watched)

    def pointers(self, n: int = 1) -> tuple[Any, Any]:
        """Return (first child, next sibling) of every node, int64 [n, nodes], -1 for none."""
        count = len(self.tokens) + 1
        first, following = np.full(count, -1), np.full(count, -1)
        for at in range(count - 1, 0, -1):
            following[at] = first[self.parents[at - 1]]
            first[self.parents[at - 1]] = at
        return self._tile(first, n), self._tile(following, n)

    def _tiled(self, n: int) -> tuple[Any, ...]:
        return tuple(self._tile(part, n) for part in self._parts)

    @cached_property
    def _parts(self) -> tuple[Any, ...]:
        p, q = np.array(self.p, np.float64), np.array(self.q, np.float64)
        if self.chain:
            return p, q[:-1], np.array(self.tokens, np.int64)
        tokens = np.array((-1, *self.tokens), np.int64)
        return p, q, tokens, np.array((-1, *self.parents), np.int64)

    @staticmethod
    def _tile(part: Any, n: int) -> Any:
        return np.tile(part, (n, *[1] * part.ndim)) if n > 1 else part[None].copy()

    @property
    def dtype(self) -> str:
        """The coarsest type that laws were handed over in."""
        return max(self.handed or {"float32"}, key=lambda name: UNIT[name])

    def root(self) -> Node:
        """Return the draft with exact laws: those of the numbers as handed over."""
        dtype = self.dtype
        return tree(
            [exact(row, dtype) for row in self.p],
            [exact(row, dtype) for row in self.q],
            self.tokens,
            self.parents,
        )

    def chance(self, drafter: Drafter) -> Fraction:
        """Return the probability that a drafter makes this draft, exactly.

        Its laws are known along the draft only; elsewhere those of the root stand in, which is the
        matter of other drafts.
        """
        texts: list[Context] = [()]
        widths: dict[int, int] = {}
        for at, (x, parent) in enumerate(zip(self.tokens, self.parents, strict=True), start=1):
            texts.append((*texts[parent], x))
            siblings = sum(above == parent for above in self.parents[:at])
            level = len(texts[parent])
            widths[level] = max(widths.get(level, 0), siblings)
        order = nodes(self.root())
        p, q = ({t: getattr(n, law) for t, n in zip(texts, order, strict=True)} for law in "pq")
        shape: Shape = self.gamma if self.chain else tuple(widths[at] for at in sorted(widths))

        def program(choose: Any) -> Any:
            root = drafter(
                lambda text: p.get(text, p[()]), lambda text: q.get(text, q[()]), shape, choose, ()
            )
            return flat(root)

        return as_fraction(law(program).get((self.tokens, self.parents), 0))

    def with_draft(
        self, tokens: tuple[int, ...], parents: tuple[int, ...], q: tuple[Floats, ...]
    ) -> "Case":
        """Return the case of another draft, where row d of this one is the law at depth d.

        Args:
            tokens, parents: of its nodes 1, 2, ...
            q: its declared rows; those that it does not have are this case's.
        """
        depths = [0]
        for parent in parents:
            depths.append(depths[parent] + 1)
        declared = (*q, *(self.q[depth] for depth in depths[len(q) :]))[: len(depths)]
        p = tuple(self.p[depth] for depth in depths)
        return Case(p, declared, tokens, parents, self.rule, self.shape)

    def to_json(self) -> dict[str, Any]:
        """Return the case as JSON data; floats are exact, as hexadecimal strings."""
        data: dict[str, Any] = {
            "rule": self.rule,
            "shape": self.shape,
            "p": [[w.hex() for w in row] for row in self.p],
            "q": [[w.hex() for w in row] for row in self.q],
            "tokens": list(self.tokens),
            "parents": list(self.parents),
        }
        if self.made_from is not None:
            data["logits"] = [[[w.hex() for w in row] for row in rows] for rows in self.made_from]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Case":
        """Return the case that `to_json` wrote."""

        def rows(lists: Any) -> tuple[Floats, ...]:
            return tuple(tuple(float.fromhex(w) for w in row) for row in lists)

        made = data.get("logits")
        return Case(
            rows(data["p"]),
            rows(data["q"]),
            tuple(data["tokens"]),
            tuple(data["parents"]),
            data["rule"],
            data["shape"],
            (rows(made[0]), rows(made[1])) if made else None,
        )


@lru_cache(maxsize=100_000)
def exact(row: Floats, dtype: str = "float32") -> Law:
    """Return a row of floats, rounded to `dtype`, as an exact law: divided by its exact sum."""
    return normalise(rational(w) for w in rounded(row, dtype))


def rounded(row: Sequence[float], dtype: str) -> Floats:
    """Return the row as it is after a conversion to `dtype`."""
    if dtype == "bfloat16":  # NumPy has none: keep the upper half of a float32, to nearest even
        bits = np.array(row, np.float32).view(np.uint32)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return tuple(float(w) for w in kept.view(np.float32))
    return tuple(float(w) for w in np.array(row, np.float64).astype(dtype))


def _logs(rows: tuple[Floats, ...]) -> tuple[Floats, ...]:
    with np.errstate(divide="ignore"):
        return tuple(tuple(float(w) for w in np.log(np.array(row))) for row in rows)


@dataclass(frozen=True)
class Fixture:
    """Two toy models whose law depends on the last token, and a shape of draft.

    Attributes:
        name: what reports call it.
        p, q: law by last token; row () is that of the empty context.
        shape: depth of a chain or widths of a tree.
    """

    name: str
    p: Mapping[Context, Floats]
    q: Mapping[Context, Floats]
    shape: Shape

    @property
    def vocab(self) -> int:
        return len(self.p[()])

    def floats(self, context: Context) -> tuple[Floats, Floats]:
        """Return the float32 rows (p, q) after a context."""
        key = context[-1:] if context[-1:] in self.p else ()
        return self.p[key], self.q[key]

    def target(self, context: Context, dtype: str = "float32") -> Law:
        """Return the exact target law after a context."""
        return exact(self.floats(context)[0], dtype)

    def draft(self, context: Context, dtype: str = "float32") -> Law:
        """Return the exact draft law after a context."""
        return exact(self.floats(context)[1], dtype)

    def drafts(
        self, drafter: Drafter, context: Context = (), dtype: str = "float32"
    ) -> dict[tuple[tuple[int, ...], tuple[int, ...]], Fraction]:
        """Return every draft (tokens, parents) that the drafter can make, with its probability."""

        def program(choose: Any) -> Any:
            root = drafter(
                lambda text: self.target(text, dtype),
                lambda text: self.draft(text, dtype),
                self.shape,
                choose,
                context,
            )
            return flat(root)

        return law(program)

    def case(
        self,
        draft: tuple[tuple[int, ...], tuple[int, ...]],
        rule: str | None,
        context: Context = (),
    ) -> Case:
        """Return the case of one draft."""
        tokens, parents = draft
        texts = [context]
        for x, parent in zip(tokens, parents, strict=True):
            texts.append((*texts[parent], x))
        rows = [self.floats(text) for text in texts]
        laws = tuple(p for p, _ in rows), tuple(q for _, q in rows)
        kind = "chain" if isinstance(self.shape, int) else "tree"
        return Case(*laws, tokens, parents, rule, kind)

    @property
    def gamma(self) -> int:
        return depth(self.shape)

    def greedy(self) -> "Fixture":
        """Return the fixture with every target law put on its likeliest token."""
        sharp = {
            context: tuple(float(x == row.index(max(row))) for x in range(len(row)))
            for context, row in self.p.items()
        }
        return Fixture(f"{self.name}, greedy", sharp, self.q, self.shape)

    def to_json(self) -> dict[str, Any]:
        """Return the fixture as JSON data; floats are exact, as hexadecimal strings."""

        def rows(table: Mapping[Context, Floats]) -> list[Any]:
            return [[list(context), [w.hex() for w in row]] for context, row in table.items()]

        shape = self.shape if isinstance(self.shape, int) else list(self.shape)
        return {"fixture": self.name, "p": rows(self.p), "q": rows(self.q), "shape": shape}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Fixture":
        """Return the fixture that `to_json` wrote."""

        def table(rows: Any) -> dict[Context, Floats]:
            return {tuple(c): tuple(float.fromhex(w) for w in row) for c, row in rows}

        shape = data["shape"] if isinstance(data["shape"], int) else tuple(data["shape"])
        return Fixture(data["fixture"], table(data["p"]), table(data["q"]), shape)


def _row(*weights: int) -> Floats:
    total = sum(weights)
    return tuple(float(np.float32(w / total)) for w in weights)


def _table(*rows: tuple[int, ...]) -> dict[Context, Floats]:
    contexts: list[Context] = [(), *((x,) for x in range(len(rows) - 1))]
    return {context: _row(*row) for context, row in zip(contexts, rows, strict=True)}


# Laws differ after every token, residuals have two tokens of unequal mass at every position (beyond
# V = 2), and one pair has zeros in p and q, at the first and the last token too: whole classes of
# faults vanish on tamer tables.
_MIXED = (
    _table((4, 3, 2, 1), (1, 5, 1, 3), (3, 1, 5, 1), (1, 4, 1, 4), (5, 1, 3, 1)),
    _table((1, 1, 3, 5), (4, 2, 3, 1), (1, 5, 2, 2), (4, 3, 2, 1), (2, 4, 1, 3)),
)
_ZEROS = (
    _table((5, 2, 1, 0), (0, 3, 1, 4), (4, 0, 3, 1), (1, 5, 0, 2), (2, 1, 5, 0)),
    _table((1, 0, 3, 4), (3, 1, 4, 0), (0, 5, 1, 2), (4, 2, 2, 0), (1, 4, 1, 2)),
)
_SMALL = (
    _table((4, 3, 1), (1, 4, 3), (2, 1, 5), (3, 4, 1)),
    _table((1, 2, 5), (6, 1, 1), (1, 5, 2), (1, 1, 6)),
)
_PAIR = (_table((3, 1), (1, 3), (1, 1)), _table((1, 3), (3, 1), (1, 3)))
# What no other table has: drafts that the target finds unlikely behind one that it likes, and a
# token that it is all but sure of.
_TURN = (_table((1, 3), (1, 11), (11, 1)), _table((1, 2), (3, 1), (1, 3)))
_SURE = (_table((3999, 1)), _table((3, 1)))


def grid(vocab: int, denominator: int) -> Iterator[Fixture]:
    """Yield every pair of laws with this denominator, at one position; simplest laws first."""
    laws = [
        tuple(count / denominator for count in parts)
        for parts in product(range(denominator + 1), repeat=vocab)
        if sum(parts) == denominator
    ]
    laws.sort(key=lambda row: (sum(w > 0 for w in row), row))
    for at, (p, q) in enumerate(product(laws, repeat=2)):
        yield Fixture(f"grid V={vocab} 1/{denominator} #{at}", {(): p}, {(): q}, 1)


def fixtures(shape: str, thorough: bool, width: int | None = None) -> list[Fixture]:
    """Return the fixtures for chains or trees, smallest first.

    Args:
        shape: "chain" or "tree".
        thorough: include the larger ones.
        width: of trees, if only one number of siblings will do.
    """
    one: Shape = 1 if shape == "chain" else (width or 2,)
    small = [Fixture(f.name, f.p, f.q, one) for f in (*grid(2, 2), *grid(3, 2))]
    if shape == "chain":
        large = [
            Fixture("pair", *_PAIR, 2),
            Fixture("small", *_SMALL, 2),
            Fixture("mixed", *_MIXED, 2),
            Fixture("zeros", *_ZEROS, 2),
            Fixture("deep", *_PAIR, 4),
        ]
        more = [Fixture("small, deep", *_SMALL, 3), Fixture("mixed, deep", *_MIXED, 3)]
    else:
        thin = [] if width else [Fixture("turn, one sibling", *_TURN, (1, 1))]
        large = [
            Fixture("sure", *_SURE, one),
            *thin,
            Fixture("small", *_SMALL, one),
            Fixture("mixed", *_MIXED, one),
            Fixture("zeros", *_ZEROS, one),
            Fixture("pair, two levels", *_PAIR, (width or 2,) * 2),
        ]
        more = [] if width else [Fixture("small, three siblings", *_SMALL, (3,))]
    if thorough:
        small += [Fixture(f.name, f.p, f.q, one) for f in grid(3, 4)]
        large += more
    return small + large


def rounds_fixture(shape: str, least: bool = False, width: int | None = None) -> Fixture:
    """Return the fixture on which rounds follow one another.

    Args:
        shape: "chain" or "tree".
        least: take two tokens, where every cell of two rounds costs many questions.
        width: as in `fixtures`.
    """
    if shape == "chain":
        return Fixture("pair", *_PAIR, 1) if least else Fixture("small", *_SMALL, 1)
    return Fixture("pair", *_PAIR, (width or 2,))


def sampled_fixtures(shape: str, width: int | None = None) -> list[Fixture]:
    """Return the fixtures for black-box sampling: few, and telling; `width` as in `fixtures`."""
    at: Shape = 2 if shape == "chain" else (width or 2,)
    return [Fixture("mixed", *_MIXED, at), Fixture("zeros", *_ZEROS, at)]


@dataclass(frozen=True)
class OneLevel:
    """Drafts of a single level, and the cases in which a token is among them.

    Attributes:
        rule: the rule that the subject is held to, or None.
        shape: "chain" or "tree".
        drafter: makes the drafts; None if a rule takes any.
        width: number of siblings of a tree, if only one will do.
    """

    rule: str | None
    shape: str
    drafter: Drafter | None = None
    width: int | None = None

    def cases(
        self, p: Floats, q: Floats, x: int, made_from: tuple[Floats, Floats] | None = None
    ) -> Iterator[Case]:
        """Yield a case in which x was drafted; none if the drafter never drafts x.

        A tree has a second sibling, the next that q can draw, if the drafter agrees.
        """
        following = next(y % len(q) for y in range(x + 1, x + 1 + len(q)) if q[y % len(q)])
        tokens: tuple[int, ...] = (x,) if self.shape == "chain" else (x, following)
        if self.drafter is not None:
            siblings: Shape = 1 if self.shape == "chain" else (self.width or 2,)
            drafts = Fixture("one level", {(): p}, {(): q}, siblings).drafts(self.drafter)
            made = [drawn for drawn, _ in drafts if x in drawn]
            if not made:
                return
            tokens = min(made, key=lambda drawn: (drawn != tokens, drawn[0] != x, drawn))
        count = len(tokens) + 1
        logits = ((made_from[0],) * count, (made_from[1],) * count) if made_from else None
        parents = (0,) * len(tokens)
        yield Case((p,) * count, (q,) * count, tokens, parents, self.rule, self.shape, logits)


def tiny_masses(drafts: OneLevel) -> Iterator[Case]:
    """Yield cases in which a token was drafted whose mass half precision rounds to zero."""
    small = 2.0**-26
    for p, q in (
        ((1.0, 0.0), (1.0, small)),
        ((1.0, 2.0**-30), (1.0, small)),
        ((0.5, 0.5, 0.0), (0.5, 0.5, small)),
    ):
        yield from drafts.cases(p, q, len(p) - 1)


def near_ties(drafts: OneLevel) -> Iterator[Case]:
    """Yield cases in which p and q are neighbouring floats.

    There p <= q can hold at every token although both sum to one up to rounding: a rejection is
    still possible, with a chance of a few units in the last place, and leaves no residual.

    Tokens of mass 0 stand first and last, where a search through an empty residual ends.

    The first kind nudges one probability, the second one logit: the laws are then the float32
    softmax of the logits, as a sampler that starts from logits computes it.
    """
    wide = ((0.6, 0.4), (0.5, 0.3, 0.2), (0.0, 0.6, 0.4, 0.0))
    for weights in wide:
        q = tuple(float(np.float32(w)) for w in weights)
        for x in (x for x, weight in enumerate(q) if weight):
            for steps in (1, 2):
                low = np.float32(q[x])
                for _ in range(steps):
                    low = np.nextafter(low, np.float32(0))
                p = (*q[:x], float(low), *q[x + 1 :])
                yield from drafts.cases(p, q, x)
    for base in ((0.5, 0.0), (1.0, 0.0), (2.0, 1.0, 0.5)):
        q_logits = np.array(base, np.float32)
        for x, steps in product(range(len(base)), (1, 2)):
            p_logits = q_logits.copy()
            for _ in range(steps):
                p_logits[x] = np.nextafter(p_logits[x], np.float32(-9))
            p, q = _softmax(p_logits), _softmax(q_logits)
            if any(a < b for a, b in zip(p, q, strict=True)):
                yield from drafts.cases(p, q, x, (_floats(p_logits), _floats(q_logits)))


def _softmax(logits: Any) -> Floats:
    """Return the float32 softmax, computed as most kernels do: shift, exponentiate, divide."""
    e = np.exp(logits - logits.max())
    return _floats(e / e.sum(dtype=np.float32))


def _floats(row: Any) -> Floats:
    return tuple(float(w) for w in row)
