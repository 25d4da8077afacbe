"""The importable reference samplers: one round on given laws, and whole sequences from models."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from specref.choice import Seeded, Trace, Uniforms
from specref.decode import Drafting, check_shape, find_rule, rounds
from specref.dist import Law, Number, entries, exact_row, integers, normalise, rational, whole
from specref.draft import DRAFTS, Drafter, Node, Shape, likeliest, tree, without_replacement
from specref.model import Context, Model
from specref.rules import Rule
from specref.stops import Stops, Text


class Count(NamedTuple):
    """What one round came to: drafted tokens, how many of them were accepted, tokens emitted.

    Drafts behind an end, and tokens that it cut, do not count. `accepted` is None for rules that go
    on behind a correction (`Rule.off_path`): what they emit does not tell.
    """

    drafted: int
    accepted: int | None
    emitted: int


class Generated(NamedTuple):
    """A whole sequence.

    Attributes:
        tokens: emitted, without the prompt; the end token or sequence is among them.
        reason: what ended them: "eos", "stop" or "length".
        rounds: what each round came to.
    """

    tokens: Text
    reason: str
    rounds: tuple[Count, ...]


def generate(
    target: Callable[[Context], Sequence[Number]],
    draft: Callable[[Context], Sequence[Number]] | None,
    *,
    rule: str | Rule = "token",
    gamma: Drafting = 4,
    max_tokens: int,
    eos: int | Iterable[int] | None = None,
    stop: Iterable[Sequence[int]] = (),
    min_tokens: int = 0,
    prompt: Sequence[int] = (),
    seed: int = 0,
    drafter: Drafter | None = None,
) -> Generated:
    """Generate one sequence by draft and verify: the importable reference sampler (`decode`).

    It is made of exact numbers: floats that the models return count at their exact binary value,
    and each row is divided by its exact sum, as `verify` does. So its law is that of plain decoding
    from `target`, exactly, up to draws that are multiples of 2^-53.

    Args:
        target, draft: a `Table`, an `NGram`, a `logits.Process` or any callable from a context (the
            prompt and what was emitted) to a law [V]. Draft may be None where no draft model is
            asked: if gamma is 0, or the drafter does without, such as `drafters.prompt_lookup`.
        rule: a name in `RULES` or a `Rule`.
        gamma: drafts per round; 0 is plain decoding. Tree rules take a tuple of widths, too. Or a
            function from the emitted text to either, asked before anything is drafted. What could
            not be emitted within `max_tokens` is not drafted.
        max_tokens: so many tokens at most; 0 emits none and asks no model.
        eos: the token or tokens that end the sequence, in 0 <= token < V.
        stop: sequences of tokens that end it.
        min_tokens: so many tokens before an end by `eos` or `stop`; see `Stops`.
        prompt: tokens before the first.
        seed: 0 <= seed < 2^64. Draws are addressed by it and by the start of each round (`philox`):
            the same seed gives the same sequence.
        drafter: how drafts are grown; that of the rule if left out. What is lossless is a rule with
            a drafter that it is made for.

    >>> from specref.model import Table
    >>> target = Table({(): ["1/2", "3/10", "1/5"]}, order=0)
    >>> draft = Table({(): ["1/5", "1/5", "3/5"]}, order=0)
    >>> generate(target, draft, gamma=2, max_tokens=9, eos=2, seed=1).tokens
    (0, 0, 0, 2)

    Raises:
        KeyError: an unknown rule.
        ValueError: any other argument, by name and with the range that it has; models that return
            no laws over the same tokens.
    """
    entry = find_rule(rule)
    stops = Stops(whole(max_tokens, "max_tokens", _LIMIT, 0), eos, stop, min_tokens)
    if not 0 <= whole(seed, "seed", "pass 0 <= seed < 2^64") < 1 << 64:
        raise ValueError(f"seed = {seed} is out of range; pass 0 <= seed < 2^64")
    shape: Drafting
    if callable(gamma):
        asked = gamma
        shape = lambda text: _shape(entry, asked(text), f"gamma({text})")  # noqa: E731
    else:
        shape = _shape(entry, gamma, "gamma")
    chosen = entry.draft if drafter is None else _drafter(entry, drafter)
    start = tuple(
        whole(x, f"prompt[{at}]", "tokens are integers >= 0", 0)
        for at, x in enumerate(entries(prompt, "prompt"))
    )
    vocab: list[int] = []
    p = _laws(target, "target", vocab)
    if stops.max_tokens:
        known = getattr(target, "vocab", None)  # a table has no row behind a token that is none
        size = known if isinstance(known, int) else len(p(start))
        for at, x in enumerate(start):
            if x >= size:
                raise ValueError(f"prompt[{at}] = {x} is outside 0 <= token < {size}")
        p(start)
    q = _none if draft is None else _laws(draft, "draft", vocab)
    text: Text = ()
    counts = []
    for root, out, grown in rounds(
        replace(entry, draft=chosen), p, q, shape, stops, Seeded(seed), start
    ):
        emitted = len(grown) - len(text)
        accepted = None if entry.off_path else min(len(out) - 1, emitted)
        counts.append(Count(_drafted(root, stops, text), accepted, emitted))
        text = grown
    reason = stops.reason(text)
    assert reason is not None
    return Generated(text, reason, tuple(counts))


_LIMIT = "pass a number of tokens >= 0"


def _shape(rule: Rule, gamma: Any, name: str) -> Shape:
    """Return a number of drafts or widths, checked."""
    cure = "pass a number of drafts >= 0, or widths >= 1 for a tree"
    if not isinstance(gamma, Iterable):
        return whole(gamma, name, cure, 0)
    listed = enumerate(entries(gamma, name))
    shape = tuple(whole(width, f"{name}[{at}]", cure, 1) for at, width in listed)
    check_shape(rule, shape, name)
    return shape


def _drafter(rule: Rule, drafter: Drafter) -> Drafter:
    """Return a drafter, unless it is known that the rule is not lossless with it."""
    if not callable(drafter):
        raise ValueError(f"drafter = {drafter!r} is no drafter; pass one of specref.draft")
    fits = drafter is rule.draft or rule.any_draft or not rule.lossless
    if rule.own_drafts or drafter in DRAFTS.values():
        # A single sibling is a draw from q, whoever draws siblings.
        alone = rule.shape == "chain" and drafter is not likeliest
        if not fits and not alone:
            raise ValueError(
                f"drafter = {drafter.__name__}, but {rule.name} is lossless with "
                f"{rule.draft.__name__}; leave drafter out"
            )
    return drafter


def _laws(model: Any, name: str, vocab: list[int]) -> Model:
    """Return a model with its rows read exactly and its latest laws remembered.

    Args:
        model: a callable from a context to a row.
        name: what the caller calls it.
        vocab: the number of tokens, as soon as a row was seen.
    """
    if not callable(model):
        raise ValueError(f"{name} = {model!r} is no model; pass a callable from a context to a law")

    def law(context: Context) -> Law:
        shown = context if len(context) <= 8 else ("...", *context[-4:])
        row = _row(model(context), f"{name}({', '.join(map(str, shown))})")
        if not vocab:
            vocab.append(len(row))
        if len(row) != vocab[0]:
            raise ValueError(
                f"{name} has {len(row)} tokens after {len(context)} tokens, but the first law had "
                f"{vocab[0]}; pad the smaller"
            )
        return row

    return lru_cache(maxsize=1024)(law)


def _none(context: Context) -> Law:
    raise ValueError(
        "draft = None, but the drafter asks a draft model; pass draft=, or gamma=0, or "
        "drafter=specref.drafters.prompt_lookup"
    )


def _drafted(root: Node, stops: Stops, text: Text) -> int:
    """Return how many tokens were drafted behind texts without an end."""
    count, todo = 0, [(root, text)]
    while todo:
        node, path = todo.pop()
        if stops.end(path, begun=len(text)) is None:
            count += len(node.children)
            todo += [(child, (*path, x)) for x, child in node.children]
    return count


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
