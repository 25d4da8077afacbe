"""One round, step by step: what a rule decides on a given draft, and with which chances.

Nothing of a rule is written down here. Every chance and every law is read off runs of the rule
itself; formulas such as min(1, p/q) are named only where their value is the one that was read.
"""

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from specref.choice import Step
from specref.dist import Law, Number
from specref.draft import Node, nodes
from specref.explain.formulas import (
    Coin,
    bar,
    correction,
    deferred,
    drawn_from,
    likeliest,
    listed,
    named,
    row,
)
from specref.explain.given import Draft, Leaf, emitted_law, leaves, read, uniforms

__all__ = ["Draft", "Leaf", "emitted_law", "explain", "leaves", "read", "uniforms"]

WIDTH = 78

FORMULA = r"\w*\((?:[^()]|\([^()]{,20}\)){,40}\)(?: = [\d/]+)?| = "
"""What is not broken over lines, if it is short."""


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
    out.append(f"  drafted    {listed(draft.tokens) or 'nothing'}")
    out += [f"  {name:<10} {value}" for name, value in draft.parameters.items()]
    if rule.one_hot_target and any(max(law) != 1 for law in draft.p):
        out += wrap(
            f"Mind: {rule.name} keeps the target's law only where p puts mass 1 on one token.",
            WIDTH, initial_indent="  ", subsequent_indent="  ",
        )  # fmt: skip
    return "\n".join(out)


def _givenlines(name: str, rows: Sequence[Law], used: int) -> list[str]:
    if used and all(law == rows[0] for law in rows[:used]):
        return [f"  {name:<10} {row(rows[0])}" + "  everywhere" * (used > 1)]
    return [f"  {f'{name}[{at}]':<10} {row(law)}" for at, law in enumerate(rows[:used])]


class _Walk:
    """Tells the decision tree of a draft: one numbered step per decision."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.number = draft, 0
        self.leaves = list(leaves(draft))
        self.word = _word(draft)
        self.told: set[str] = set()
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
        first = ["The whole draft is tested first, then shorter and shorter beginnings of it."]
        return [
            *(first if deferred(self.draft) else []),
            *self._walk(self.leaves, 0),
            *self._untested(),
        ]

    def _walk(self, paths: list[Leaf], at: int, indent: str = "") -> Iterator[str]:
        """Tell the choice with this number that these paths have in common, and what follows."""
        step = paths[0].steps[at]
        branches: dict[int | bool, list[Leaf]] = {}
        for path in paths:
            branches.setdefault(path.steps[at].outcome, []).append(path)
        if step.at is None:
            text = self._terminal("Nothing is drafted", paths[0], step)
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
                text += self._terminal(self._case(leaf, leaf.steps[at]), leaf, leaf.steps[at + 1])
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
            return f"If {self.word}" if step.outcome else "If refused"
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
        what = self._draft(step.at.index)
        if chance == 0:
            outcome = f"Never {self.word}."
        elif chance == 1:
            outcome = f"Always {self.word}."
        else:
            outcome = f"{self.word} with chance {chance}, refused with chance {1 - chance}."
            outcome = outcome.capitalize()
        found = named(Coin(self.draft, step.at.index))
        if found is None:
            return [f"{what}: p = {parent.p[x]}, q = {parent.q[x]}.", outcome]
        _, value = found
        said = [f"{name} = {number}" for name, number in value.given.items()]
        said += [f"{value.name} = {chance}"] if value.name else []
        return [f"{what}: {', '.join(said)}.", *self._once(value.where), outcome]

    def _once(self, sentence: str) -> list[str]:
        """Return a sentence, unless it is empty or was told before."""
        new = sentence and sentence not in self.told
        self.told.add(sentence)
        return [sentence] if new else []

    def _draft(self, index: int) -> str:
        x, parent = self.places[index]
        if deferred(self.draft):
            return f"The beginning {listed(self.draft.tokens[:index])}"
        if self.draft.chain:
            return f"Draft {x} at position {self.depth[parent.index]}"
        return f"Sibling {x}"

    def _untested(self) -> Iterator[str]:
        """Say which drafted tokens no path of the round comes to."""
        told: set[int] = set()
        for step in {step for leaf in self.leaves for step in leaf.steps if step.at}:
            _, parent = self.places[step.at.index]
            draws = step.kind == "choose"
            told |= {child.index for _, child in parent.children} if draws else {step.at.index}
        for index in sorted(self.places.keys() - told):
            yield f"{self._draft(index)} is never tested on this draft."

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
        never = dict.fromkeys(drafted - kept.keys(), 0)
        source = drawn_from(self.draft, step, kept | ended | never)
        place = f" at position {at}" if self.draft.chain else ""
        text = [f"One draw{source}{place}."]
        for x, chance in kept.items():
            text.append(f"It is the drafted {x} with chance {chance}: accepted.")
        for x in sorted(never):
            text.append(f"It is never the drafted {x}.")
        if ended:
            listed = ", ".join(f"{x}: {chance}" for x, chance in sorted(ended.items()))
            text.append(f"Any other is itself the correction ({listed}).")
        for chance in refused:
            text.append(f"It is none of the drafted with chance {chance}: refused.")
        return text

    def _terminal(self, case: str, leaf: Leaf, step: Step) -> list[str]:
        """Tell what the terminal draw is, and name its law if it is a known one."""
        node = self._reached(leaf)[-1]
        if node.children:
            what, known = "the correction", correction(self.draft, node.index, step.weights)
            name, where = (known.name, known.where) if known else ("", "")
        else:
            what, where = "the bonus", ""
            name = self._target(node) if node.p == step.weights else ""
        given = f"{name} = " * bool(name) + row(step.weights)
        return [f"{case}, {what} is drawn from {given}.", *self._once(where)]

    def _target(self, node: Node) -> str:
        return "p" if len(set(self.draft.p)) == 1 else f"p[{node.index}]"

    def _without_draws(self, emitted: tuple[int, ...]) -> list[str]:
        """Tell a round that is certain by what it emits."""
        out = ["The rule draws nothing on this draft."]
        kept = bar(self.draft)
        if kept is not None:
            out.append(f"It keeps what p puts above min(epsilon, delta exp(-H(p))) = {kept:.6f}.")
        node = self.draft.root
        texts: list[str] = []
        for at, x in enumerate(emitted):
            taken = dict(reversed(node.children)).get(x) if at < len(emitted) - 1 else None
            most = max((node.p[token] for token, _ in node.children), default=None)
            for token, child in node.children:
                word = "refused" if taken is None else "not taken"
                if child is taken:
                    word = "accepted"
                    if len(node.children) > 1 and node.p[token] == most:
                        word = "accepted, of the drafted the likeliest"
                texts.append(f"{self._draft(child.index)}: p = {node.p[token]}, {word}.")
            if taken is None:
                what = "correction" if node.children else "bonus"
                why = f", the likeliest of {self._target(node)}" * (x == likeliest(node.p))
                texts.append(f"The {what} is {x}{why}.")
            else:
                node = taken
        return out + [f"{at}. {text}" for at, text in enumerate(texts, start=1)]


def _word(draft: Draft) -> str:
    """Return the word for a coin that lets a draft pass, which may be only part of one."""
    return "kept" if deferred(draft) else "accepted"


def _table(draft: Draft) -> str:
    outcomes = emitted_law(draft)
    texts = {out: _tuple(out) for out in outcomes}
    wide = max(len("tokens"), *(len(text) for text in texts.values()))
    number = max(len("chance"), *(len(str(chance)) for chance in outcomes.values()))
    out = ["What the round emits on this draft:", f"  {'tokens':<{wide}}  chance"]
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
    elif not rule.lossless:
        out += wrap(
            f"{rule.name} is lossy: mixed over all drafts, its law is not the target's in general.",
            WIDTH,
        )
    return "\n".join(out)


def _replayed(draft: Draft, draws: Sequence[Number]) -> Iterator[str]:
    """Yield each decision of the round on given draws."""
    done = draft.run(draws)
    yield f"With u = {listed(draws)}:"
    used = set()
    for step in done.trace.steps:
        column = len(draws) - 1 if step.at is None else step.at.index - 1
        used.add(column)
        if step.kind == "flip":
            sign, word = ("<", _word(draft)) if step.outcome else (">=", "refused")
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


def _tuple(tokens: Sequence[int]) -> str:
    return f"({', '.join(str(x) for x in tokens)})"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _wrapped(text: str, head: str, indent: str) -> Iterator[str]:
    """Wrap a line, but not within a short formula."""
    kept = re.sub(FORMULA, lambda found: found[0].replace(" ", "\xa0"), text)
    for line in wrap(kept, WIDTH, initial_indent=head, subsequent_indent=indent):
        yield line.replace("\xa0", " ")
