"""One round, step by step: what a rule decides on a given draft, and with which chances.

Nothing of a rule is written down here. Every chance and every law is read off runs of the rule
itself; formulas such as min(1, p/q) are named only where their value is the one that was read.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import NamedTuple

from specref.choice import Step, Trace, law
from specref.decode import Round, find_rule, verify
from specref.dist import Law, Number, excess, rational, without
from specref.draft import Node, nodes, tree, without_replacement
from specref.rules import Rule

WIDTH = 78


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

    def run(self, uniforms: Sequence[Number]) -> Round:
        """Run the round on given draws; this checks the draft, too."""
        rows = self.p, self.q, self.tokens, self.parents
        return verify(self.rule, *rows, uniforms=uniforms)

    def first(self, siblings: int) -> "Draft":
        """Return the draft cut to its first siblings."""
        nodes = siblings + 1
        tokens, parents = self.tokens[:siblings], self.parents[:siblings]
        return Draft(self.rule, self.p[:nodes], self.q[:nodes], tokens, parents)


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
    tokens = _tokens(x)
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
    draft.run((0,) * count)
    return draft


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


def leaves(draft: Draft) -> list[Leaf]:
    """Return every way the round can go, with the choices on the way."""
    root = draft.root

    def program(choose: object) -> tuple[tuple[int, ...], tuple[Step, ...]]:
        trace = Trace(choose)
        return draft.rule.verify(root, trace), tuple(trace.steps)

    return [Leaf(out, steps, chance) for (out, steps), chance in law(program).items()]


def emitted_law(draft: Draft) -> dict[tuple[int, ...], Number]:
    """Return the exact law of what the round emits on this draft.

    >>> for out, chance in emitted_law(read("token", ["1/2,1/2"], ["1/4,3/4"], "1")).items():
    ...     print(out, chance)
    (0,) 1/3
    (1, 0) 1/3
    (1, 1) 1/3
    """
    root = draft.root
    return dict(sorted(law(lambda choose: draft.rule.verify(root, choose)).items()))


def explain(draft: Draft, draws: Sequence[Number] | None = None) -> str:
    """Return the round as text: its laws, each decision, what it emits, and a run on given draws.

    Args:
        draft: from `read`.
        draws: a coin for each drafted token and the terminal draw, or None.
    """
    parts = [_head(draft), "\n".join(_Walk(draft).lines()), _table(draft)]
    if draws is not None:
        parts.append("\n".join(_replayed(draft, draws)))
    return "\n\n".join(parts)


def _head(draft: Draft) -> str:
    rule, count = draft.rule, len(draft.tokens)
    if draft.chain:
        kind = f"a chain of {_number(count, 'drafted token')}"
    else:
        kind = f"{_number(count, 'sibling')} at one level, in the order drawn"
    out = [f"{rule.name}: one round on {kind}", f"  {rule.source}", ""]
    out += _givenlines("p", draft.p, len(draft.p))
    if rule.drafts_from_q:
        out += _givenlines("q", draft.q, count if draft.chain else min(1, count))
    else:
        out.append("  q          is not read by this rule")
    out.append(f"  drafted    {_listed(draft.tokens) or 'nothing'}")
    if rule.one_hot_target and any(max(row) != 1 for row in draft.p):
        out += wrap(
            f"Mind: {rule.name} keeps the target's law only where p puts mass 1 on one token.",
            WIDTH, initial_indent="  ", subsequent_indent="  ",
        )  # fmt: skip
    return "\n".join(out)


def _givenlines(name: str, rows: Sequence[Law], used: int) -> list[str]:
    if used and all(row == rows[0] for row in rows[:used]):
        return [f"  {name:<10} {_row(rows[0])}" + "  everywhere" * (used > 1)]
    return [f"  {f'{name}[{at}]':<10} {_row(row)}" for at, row in enumerate(rows[:used])]


class _Walk:
    """Tells the decision tree of a draft: one numbered step per decision."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.number = draft, 0
        self.leaves = leaves(draft)
        self.places: dict[int, tuple[int, Node]] = {}
        self.depth = {0: 0}
        for node in nodes(draft.root):
            for x, child in node.children:
                self.places[child.index] = (x, node)
                self.depth[child.index] = self.depth[node.index] + 1

    def lines(self) -> list[str]:
        """Return the steps."""
        if not any(leaf.steps for leaf in self.leaves):
            return self._without_draws(self.leaves[0].emitted)
        return list(self._walk(self.leaves, 0))

    def _walk(self, paths: list[Leaf], at: int, indent: str = "") -> Iterator[str]:
        """Tell the choice with this number that these paths have in common, and what follows."""
        step = paths[0].steps[at]
        branches: dict[int | bool, list[Leaf]] = {}
        for path in paths:
            branches.setdefault(path.steps[at].outcome, []).append(path)
        if step.at is None:
            text = [self._terminal("Nothing is drafted", paths[0], step)]
        elif step.kind == "flip":
            text = self._flip(step)
        else:
            text = self._draw(step, branches)
        later = []
        for branch in branches.values():
            leaf = branch[0]
            if step.at is None or len(leaf.steps) == at + 1:
                continue
            if leaf.steps[at + 1].at is None:
                text.append(self._terminal(self._case(leaf, step), leaf, leaf.steps[at + 1]))
            else:
                later.append(branch)
        self.number += 1
        head = f"{indent}{self.number}. "
        reached = sum(path.chance for path in paths)
        if reached != 1:
            text[0] = f"Reached with chance {reached}. {text[0]}"
        yield from _wrapped(text[0], head, " " * len(head))
        for line in text[1:]:
            yield from _wrapped(line, " " * len(head), " " * len(head) + "  ")
        # One decision follows another; only a rule that goes on after both needs the indent.
        for branch in later:
            yield from self._walk(branch, at + 1, indent + "  " * (len(later) > 1))

    def _case(self, leaf: Leaf, step: Step) -> str:
        """Say which outcome of a decision a path goes on from."""
        if step.kind == "flip":
            return "If accepted" if step.at in self._reached(leaf) else "If refused"
        node = self._reached(leaf)[-1]
        return f"If {self.places[node.index][0]} is accepted" if node.index else "If refused"

    def _reached(self, leaf: Leaf) -> list[Node]:
        """Return the nodes that a path accepts, after the root."""
        path: list[Node] = []
        for step in leaf.steps:
            if step.kind == "flip":
                path += [step.at] if step.outcome else []
            elif step.at is not None:
                _, parent = self.places[step.at.index]
                x = leaf.emitted[self.depth[parent.index]]
                path += [child for token, child in parent.children if token == x][:1]
        return path or [self.draft.root]

    def _flip(self, step: Step) -> list[str]:
        x, parent = self.places[step.at.index]
        (chance,) = step.weights
        if self.draft.chain:
            what = f"Draft {x} at position {self.depth[parent.index]}"
        else:
            what = f"Sibling {x}"
        if chance == 0:
            outcome = "Never accepted."
        elif chance == 1:
            outcome = "Always accepted."
        else:
            outcome = f"Accepted with chance {chance}, refused with chance {1 - chance}."
        first, *rest = self._reason(step.at, parent, x, chance)
        return [f"{what}: {first}.", *rest, outcome]

    def _reason(self, node: Node, parent: Node, x: int, chance: Number) -> list[str]:
        """Name the formula whose value the chance is, and what stands in it."""
        before = [token for token, child in parent.children if child.index < node.index]
        p, q = parent.p, parent.q
        if not before:
            if chance == p[x] and not self.draft.rule.drafts_from_q:
                return [f"p = {p[x]}"]
            formula = f", min(1, p/q) = {chance}" if q[x] and chance == min(1, p[x] / q[x]) else ""
            return [f"p = {p[x]}, q = {q[x]}{formula}"]
        left = self._left(len(before))
        if left is None:
            return [f"p = {p[x]}, q = {q[x]}"]
        rest: Law = q
        for token in before:
            rest = without(rest, token)
        which = f"Here p' = {_row(left)} is what the refusals left of p"
        if self.draft.rule.draft is without_replacement:
            name, given, where = "q'", rest, f"{which}, and q' = {_row(rest)} of q."
        else:
            name, given, where = "q", q, f"{which}."
        formula = f"p' = {left[x]}, {name} = {given[x]}"
        if given[x] and chance == min(1, left[x] / given[x]):
            formula += f", min(1, p'/{name}) = {chance}"
        return [formula, where]

    def _left(self, refused: int) -> Law | None:
        """Return the law that is still wanted after so many refused siblings, where it is seen.

        It is what the rule itself corrects from on the draft that ends there.
        """
        for leaf in leaves(self.draft.first(refused)):
            if leaf.steps[-1].at is None and not any(step.outcome for step in leaf.steps[:-1]):
                return leaf.steps[-1].weights
        return None

    def _draw(self, step: Step, branches: dict[int | bool, list[Leaf]]) -> list[str]:
        """Tell a draw at a node by what its outcomes make the round emit."""
        _, parent = self.places[step.at.index]
        at = self.depth[parent.index]
        drafted = {x for x, _ in parent.children}
        kept, ended, refused = {}, {}, []
        for outcome, paths in branches.items():
            chance = step.weights[int(outcome)]
            tokens = {path.emitted[at] for path in paths}
            if tokens <= drafted:
                kept[min(tokens)] = chance
            elif all(path.steps[-1].at is step.at for path in paths):
                ended[min(tokens)] = chance
            else:
                refused.append(chance)
        from_p = " from p" if all(w == parent.p[x] for x, w in (kept | ended).items()) else ""
        place = f" at position {at}" if self.draft.chain else ""
        text = [f"One draw{from_p}{place}."]
        for x, chance in kept.items():
            text.append(f"It is the drafted {x} with chance {chance}: accepted.")
        for x in sorted(drafted - kept.keys()):
            text.append(f"It is never the drafted {x}.")
        if ended:
            listed = ", ".join(f"{x}: {chance}" for x, chance in sorted(ended.items()))
            text.append(f"Any other is itself the correction ({listed}).")
        for chance in refused:
            text.append(f"It is none of the drafted with chance {chance}: refused.")
        return text

    def _terminal(self, case: str, leaf: Leaf, step: Step) -> str:
        """Tell what the terminal draw is, and name its law if it is a known one."""
        node = self._reached(leaf)[-1]
        weights = step.weights
        if node.children:
            what, (name, row) = "the correction", self._correction(node)
        else:
            alike = len(set(self.draft.p)) == 1
            what, (name, row) = "the bonus", ("p" if alike else f"p[{node.index}]", node.p)
        named = f"{name} = " if row == weights else ""
        return f"{case}, {what} is drawn from {named}{_row(weights)}."

    def _correction(self, node: Node) -> tuple[str, Law | None]:
        """Return the law that this rule should correct from, and its name."""
        if self.draft.rule.drafts_from_q and len(node.children) == 1:
            return "norm((p - q)+)", _residual(node)
        if self.draft.rule.drafts_from_q:
            return "what the refusals left", self._left(len(node.children))
        tried = list(dict.fromkeys(x for x, _ in node.children))
        rest: Law = node.p
        for x in tried:
            rest = without(rest, x)
        return f"p without {_listed(tried)}", rest

    def _without_draws(self, emitted: tuple[int, ...]) -> list[str]:
        out = ["The rule draws nothing on this draft."]
        for at, x in enumerate(emitted[:-1]):
            out.append(f"{at + 1}. Draft {x} at position {at}: accepted.")
        at, last = len(emitted) - 1, emitted[-1]
        if at < len(self.draft.tokens):
            refused = self.draft.tokens[at]
            text = f"Draft {refused} at position {at}: refused, {last} is emitted instead."
        else:
            text = f"The bonus is {last}."
        return [*out, f"{at + 1}. {text}"]


def _residual(node: Node) -> Law | None:
    return (
        excess(node.p, node.q) if any(a > b for a, b in zip(node.p, node.q, strict=True)) else None
    )


def _table(draft: Draft) -> str:
    outcomes = emitted_law(draft)
    texts = {out: _tuple(out) for out in outcomes}
    wide = max(len("tokens"), *(len(text) for text in texts.values()))
    number = max(len("chance"), *(len(str(chance)) for chance in outcomes.values()))
    out = ["What the round emits on this draft:", f"  {'tokens':<{wide}}  {'chance':<{number}}"]
    for tokens, chance in outcomes.items():
        decimal = f"{float(chance):.6f}"
        out.append(f"  {texts[tokens]:<{wide}}  {chance!s:<{number}}  {decimal}")
    length = sum(len(tokens) * chance for tokens, chance in outcomes.items())
    out.append(f"Expected length {length}: {length - 1} accepted and one more.")
    rule = draft.rule
    if rule.lossless and not rule.one_hot_target:
        whose = (
            "" if rule.any_draft else f"mixed over all drafts ({rule.draft.__name__} from q) and "
        )
        out += wrap(f"This law, {whose}continued by the target, is the target's own.", WIDTH)
    return "\n".join(out)


def _replayed(draft: Draft, draws: Sequence[Number]) -> Iterator[str]:
    """Yield each decision of the round on given draws."""
    done = draft.run(draws)
    yield f"With u = {_listed(draws)}:"
    used = set()
    for step in done.trace.steps:
        column = len(draws) - 1 if step.at is None else step.at.index - 1
        used.add(column)
        if step.kind == "flip":
            sign, word = ("<", "accepted") if step.outcome else (">=", "refused")
            x = draft.tokens[column]
            yield f"  u[{column}], coin of {x}: {step.u} {sign} {step.weights[0]}, {word}"
            continue
        low = sum(step.weights[: step.outcome])
        high = low + step.weights[step.outcome]
        if step.at is None:
            what, fell = "terminal draw", f"token {step.outcome}"
        else:
            position = column if draft.chain else 0
            what = f"draw at position {position}"
            ended = step is done.trace.steps[-1]
            token = f"token {done.emitted[position]}"
            fell = token if ended or position < done.accepted else "none of the drafted"
        yield f"  u[{column}], {what}: {low} <= {step.u} < {high}, {fell}"
    for column in range(len(draws)):
        if column not in used:
            yield f"  u[{column}] is not needed on this path"
    yield f"The round emits {_tuple(done.emitted)}: {done.accepted} accepted and one more."


def _row(row: Law) -> str:
    return f"({', '.join(str(w) for w in row)})"


def _tuple(tokens: Sequence[int]) -> str:
    return f"({', '.join(str(x) for x in tokens)})"


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _wrapped(text: str, head: str, indent: str) -> Iterator[str]:
    """Wrap a line, but not within a short formula."""
    kept = re.sub(r"\([^()]{,40}\)| = ", lambda found: found[0].replace(" ", "\xa0"), text)
    for line in wrap(kept, WIDTH, initial_indent=head, subsequent_indent=indent):
        yield line.replace("\xa0", " ")
