"""The draft that is explained: read from text, changed where a formula is tried, and run."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from specref.choice import Step, Trace, law
from specref.decode import find_rule
from specref.dist import Law, Number, is_exact, rational
from specref.draft import Node, flat, tree
from specref.rules import Rule
from specref.sampler import Round, verify

SHOWN = 6
"""Drafts that an error offers instead of one that cannot be."""


class Leaf(NamedTuple):
    """One way a round can go: what it emits, the choices that led there, and its chance."""

    emitted: tuple[int, ...]
    steps: tuple[Step, ...]
    chance: Number


@dataclass(frozen=True)
class Draft:
    """A draft and the rule that verifies it.

    Attributes:
        rule: the rule.
        p, q: laws by node; row 0 is the root's.
        tokens, parents: of the nodes 1, 2, ...
    """

    rule: Rule
    p: tuple[Law, ...]
    q: tuple[Law, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    @property
    def root(self) -> Node:
        """The draft as nodes."""
        return tree(self.p, self.q, self.tokens, self.parents)

    @property
    def chain(self) -> bool:
        """Whether the rule was made for chains."""
        return self.rule.shape == "chain"

    @property
    def parameters(self) -> dict[str, Number]:
        """The numbers that the rule runs with, by name: its defaults, but for zeros."""
        given = inspect.signature(self.rule.verify).parameters.values()
        numbers = {at.name: at.default for at in given if is_exact(at.default)}
        return {name: value for name, value in numbers.items() if value and value is not True}

    def run(self, uniforms: Sequence[Number]) -> Round:
        """Run the round on given draws; this checks the draft, too."""
        rows = self.p, self.q, self.tokens, self.parents
        return verify(self.rule, *rows, uniforms=uniforms)

    def first(self, siblings: int) -> "Draft":
        """Return the draft cut to its first siblings."""
        nodes = siblings + 1
        tokens, parents = self.tokens[:siblings], self.parents[:siblings]
        return Draft(self.rule, self.p[:nodes], self.q[:nodes], tokens, parents)

    def instead(self, index: int, x: int) -> "Draft":
        """Return the draft with another token at a node."""
        return replace(self, tokens=(*self.tokens[: index - 1], x, *self.tokens[index:]))

    def drafted(self) -> dict[tuple[int, ...], Number]:
        """Return the law of as many tokens as these, drafted from the rows of q."""
        shape = len(self.tokens) if self.chain else (len(self.tokens),)

        def program(choose: Any) -> tuple[int, ...]:
            return flat(self.rule.draft(self._by_depth, self._by_depth, shape, choose, ()))[0]

        return law(program)

    def _by_depth(self, context: tuple[int, ...]) -> Law:
        return self.q[len(context)]


def read(rule: str, p: Sequence[str], q: Sequence[str], x: str) -> Draft:
    """Read a draft as it is written on the command line.

    Args:
        rule: a name in `RULES`.
        p: target rows such as "1/2,3/10,1/5": one for every position, or one per drafted token and
            one for the bonus.
        q: draft rows: one for every position, or one per drafted token. A rule that does not
            read q can do without.
        x: drafted tokens such as "2,0": a chain, or for tree rules siblings at one level.

    Raises:
        KeyError: an unknown rule.
        ValueError: what is wrong, and with which argument.
    """
    entry = find_rule(rule)
    if entry.off_path:
        raise ValueError(
            f"{rule} asks the models behind tokens that were not drafted, and --p and --q are rows "
            f"of this draft alone; run {rule} on models (specref.deviation, specref compare), or "
            "explain another rule"
        )
    tokens = _tokens(x)
    if entry.width is not None and len(tokens) > entry.width:
        raise ValueError(
            f"--x has {len(tokens)} siblings; {rule} verifies {entry.width}, drafted with "
            f"{entry.draft.__name__}"
        )
    count = len(tokens) + 1
    if not q and entry.drafts_from_q:
        raise ValueError(f"--q is missing; {rule} accepts by the law that drafts were drawn from")
    laws = _rows(p, "--p", count, f"one for every position, or {count}")
    chain = entry.shape == "chain"
    parents = tuple(range(len(tokens))) if chain else (0,) * len(tokens)
    if not q:
        proposals = laws
    elif chain and len(q) == count - 1:
        proposals = (*_rows(q, "--q", count - 1, ""), laws[-1])
    else:
        proposals = _rows(q, "--q", count, f"one for every position, or {max(1, count - 1)}")
    for name, rows in (("--p", laws), ("--q", proposals)):
        for row in rows:
            if len(row) != len(laws[0]):
                raise ValueError(f"{name} has a row of {len(row)} tokens; --p has {len(laws[0])}")
    for token in tokens:
        if token >= len(laws[0]):
            raise ValueError(f"--x has token {token}; tokens are 0 to {len(laws[0]) - 1}")
    draft = Draft(entry, laws, proposals, tokens, parents)
    for token, parent in zip(tokens, parents, strict=True):
        if entry.drafts_from_q and proposals[parent][token] == 0:
            raise ValueError(
                f"--x has token {token}, which --q never proposes there: its q is 0; "
                "draft a token that q can draw"
            )
    if entry.own_drafts and tokens:
        _check_drafted(draft)
    try:
        draft.run((0,) * count)
    except ValueError as error:
        raise ValueError(f"--x {','.join(map(str, tokens))}: {error}") from None
    return draft


def _check_drafted(draft: Draft) -> None:
    """Refuse tokens that the drafter of the rule cannot draft from q."""
    possible = sorted(draft.drafted())
    if draft.tokens in possible:
        return
    listed = [",".join(map(str, tokens)) for tokens in possible[:SHOWN]]
    fit = [text for text in listed if text.count(",") + 1 == len(draft.tokens)]
    cure = f"pass --x {' or '.join(fit)}" if fit else "draft fewer tokens"
    raise ValueError(
        f"--x {','.join(map(str, draft.tokens))} is no draft for {draft.rule.name}: its drafter, "
        f"{draft.rule.draft.__name__}, never makes it from --q; {cure}"
        + ", among others"
        * (len(possible) > len(listed))
    )


def _tokens(x: str) -> tuple[int, ...]:
    parts = [part.strip() for part in x.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal():
            raise ValueError(f"--x has {part!r}; write drafted tokens as 2 or 2,0")
    return tuple(int(part) for part in parts)


def _rows(texts: Sequence[str], name: str, count: int, wanted: str) -> tuple[Law, ...]:
    rows = tuple(_law(text, name) for text in texts)
    if len(rows) == 1:
        return rows * count
    if len(rows) != count:
        raise ValueError(f"{name} is given {len(rows)} times; give it {wanted} (its rows in order)")
    return rows


def _law(text: str, name: str) -> Law:
    try:
        row = tuple(rational(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    for x, w in enumerate(row):
        if w < 0:
            raise ValueError(f"{name} gives token {x} the chance {w}; chances are >= 0")
    if sum(row) != 1:
        raise ValueError(f"{name} {text} sums to {sum(row)}, not 1")
    return row


def uniforms(text: str, draft: Draft) -> tuple[Number, ...]:
    """Read draws such as "0.3,7/10": a coin per drafted token, then the terminal draw."""
    need = len(draft.tokens) + 1
    try:
        row = tuple(rational(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"--u: {error}") from None
    if len(row) != need:
        raise ValueError(
            f"--u has {len(row)} draws; this round has {need}: a coin for each drafted token, "
            "then the terminal draw"
        )
    for u in row:
        if not 0 <= u < 1:
            raise ValueError(f"--u has {u}; draws are in 0 <= u < 1")
    return row


@lru_cache(maxsize=4096)
def leaves(draft: Draft) -> tuple[Leaf, ...]:
    """Return every way the round can go, with the choices on the way."""
    root = draft.root

    def program(choose: object) -> tuple[tuple[int, ...], tuple[Step, ...]]:
        trace = Trace(choose)
        return draft.rule.verify(root, trace), tuple(trace.steps)

    return tuple(Leaf(out, steps, chance) for (out, steps), chance in law(program).items())


def coins(draft: Draft) -> dict[int, Number]:
    """Return the chance of each coin that the rule asks on this draft, by node.

    Where it stands, a coin has one chance: a chain, or siblings at one level, are verified in one
    order, and whoever comes to a coin has met the same refusals. Nothing is returned for a draft
    that the rule refuses.
    """
    try:
        steps = [step for leaf in leaves(draft) for step in leaf.steps]
    except (ValueError, ZeroDivisionError):
        return {}
    return {step.at.index: step.weights[0] for step in steps if step.kind == "flip"}


@lru_cache(maxsize=256)
def accepted(draft: Draft) -> Law:
    """Return what is accepted of each token, over all drafts of as many siblings.

    Args:
        draft: siblings at one level; their tokens do not count.
    """
    out = [w * 0 for w in draft.p[0]]
    for tokens, mass in draft.drafted().items():
        own = draft.first(len(tokens))
        for leaf in leaves(replace(own, tokens=tokens)):
            if len(leaf.emitted) > 1:
                out[leaf.emitted[0]] += mass * leaf.chance
    return tuple(out)


def emitted_law(draft: Draft) -> dict[tuple[int, ...], Number]:
    """Return the exact law of what the round emits on this draft.

    >>> for out, chance in emitted_law(read("token", ["1/2,1/2"], ["1/4,3/4"], "1")).items():
    ...     print(out, chance)
    (0,) 1/3
    (1, 0) 1/3
    (1, 1) 1/3
    """
    out: dict[tuple[int, ...], Number] = {}
    for leaf in leaves(draft):
        out[leaf.emitted] = out.get(leaf.emitted, 0) + leaf.chance
    return dict(sorted(out.items()))
