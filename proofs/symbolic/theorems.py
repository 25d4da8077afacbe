"""The theorems that are checked, by rule: which claims, at which sizes.

`QUICK` holds those that take seconds; `LONG` larger sizes, for `python -m proofs.symbolic`. How
claims about one node add up to rounds of any shape is told in `proofs/README.md`.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

from proofs.symbolic.claims import (
    BEHIND,
    Claim,
    Models,
    contract,
    gaps,
    lossless,
    lossless_on,
    same,
)
from proofs.symbolic.reading import law
from proofs.symbolic.region import Outside, Region
from specref.dist import without
from specref.draft import Shape, one_from_each, tree, with_replacement, without_replacement
from specref.lemma import INSTANCES
from specref.rules import RULES
from specref.rules.coupled import target_given_draft
from specref.rules.heterogeneous import heterogeneous
from specref.rules.importance import by_ratio, importance
from specref.rules.k_seq import _taken, _tests, k_seq
from specref.rules.traversal import _visit
from specref.transport import distinct

Text = tuple[int, ...]
FIRST, SECOND = (lambda rows: rows[0]), (lambda rows: rows[1])


def rounds(name: str, *sizes: tuple[int, Shape]) -> list[Claim]:
    """Claim of a rule of the registry that it is lossless with its drafter."""
    rule = RULES[name]
    return [lossless(rule.verify, rule.draft, vocab, shape) for vocab, shape in sizes]


def on_second_node(name: str, shape: Shape) -> list[Claim]:
    """Claim of a rule of the registry that it is lossless behind a token that is certain, V = 2."""
    return [lossless(RULES[name].verify, RULES[name].draft, 2, shape, certain=True)]


def hub_is_first(vocab: int) -> Claim:
    """Claim of `spec_hub` that it is lossless where the likeliest token of q is 0, the hub."""
    claim = lossless(RULES["spec_hub"].verify, RULES["spec_hub"].draft, vocab, (2,))

    def differences(region: Region) -> Mapping[Any, Any]:
        hub, *others = region.law("q")
        if any(mass > hub for mass in others):
            raise Outside
        return claim.differences(region)

    return replace(claim, says=f"{claim.says} if the hub is 0", differences=differences)


def on_every_draft(name: str, vocab: int, parents: tuple[int, ...]) -> list[Claim]:
    """Claim of a rule that it is lossless on each draft of a topology, given beforehand."""
    drafts = itertools.product(range(vocab), repeat=len(parents))
    return [lossless_on(RULES[name].verify, vocab, tokens, parents) for tokens in drafts]


def greedy_drafts(vocab: int, parents: tuple[int, ...]) -> list[Claim]:
    """Claim of `greedy` that it emits the target's own text, for all targets of mass 1 on a token.

    Nothing is symbolic here: such targets are finite in number, and all are tried.
    """
    verify = RULES["greedy"].verify
    models = Models(vocab, 0)

    def differences(region: Region) -> dict[Any, Any]:
        wrong: dict[Any, Any] = {}
        for tokens in itertools.product(range(vocab), repeat=len(parents)):
            texts: list[Text] = [()]
            for x, parent in zip(tokens, parents, strict=True):
                texts.append((*texts[parent], x))
            distinct_texts = sorted(set(texts))
            for picks in itertools.product(range(vocab), repeat=len(distinct_texts)):
                likeliest = dict(zip(distinct_texts, picks, strict=True))
                rows = [tuple(int(x == likeliest[t]) for x in range(vocab)) for t in texts]
                emitted = verify(tree(rows, rows, tokens, parents), None)
                due = all(likeliest[emitted[:at]] == x for at, x in enumerate(emitted))
                wrong[tokens, picks] = int(not due)
        return wrong

    says = f"V = {vocab}, drafts with parents {list(parents)}: the target's text"
    return [Claim(f"greedy, {says}", models.symbols, differences)]


def weighed(rule: str) -> Callable[[Any, Any, Any], Text | None]:
    """Return `traversal` or `traversal_with` at a node of any weight."""
    following = without if rule == "traversal" else lambda s, x: s

    def verify(root: Any, r: Any, choose: Any) -> Text | None:
        return _visit(root, r, choose, following) or None

    return verify


def k_seq_with_rho(vocab: int, shape: tuple[int, ...], certain: bool = False) -> Claim:
    """Claim that K-SEQ is lossless for every rho with g <= rho at all nodes, `rho` a symbol."""
    models = Models(vocab, len(shape), certain=certain)
    models.symbols.add_number("rho", 1, max(shape))

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)
        rho = region.number("rho")
        for context in models.contexts(len(shape) - 1):
            rows = zip(p(context), q(context), strict=True)
            beta = sum(min(b, a / rho) for a, b in rows)
            if not sum((1 - beta) ** k for k in range(shape[len(context)])) <= rho:
                raise Outside

        def program(choose: Any) -> Text:
            return k_seq(with_replacement(p, q, shape, choose, ()), choose, rho=rho)

        return gaps(law(program, region), p, vocab, len(shape) + 1)

    rho_and_shape = f"shape {shape}{BEHIND * certain}, every rho with g <= rho"
    return Claim(f"k_seq, V = {vocab}, {rho_and_shape}: lossless", models.symbols, differences)


def rho_of_k(vocab: int, width: int) -> Claim:
    """Claim that rho = K is valid for K siblings, whatever p and q."""
    models = Models(vocab, 1)

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)
        tests = _tests(sum(_taken(p(()), q(()), width)) / width, width)
        return {"g > K": int(not tests <= width)}

    return Claim(f"k_seq, V = {vocab}: rho = {width} is valid", models.symbols, differences)


def met(vocab: int) -> Claim:
    """Claim of `coupled` that drafter and target agree with the chance of Daliri et al. (2024)."""
    models = Models(vocab, 1)

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)
        out: dict[Any, Any] = {}
        for x, (a, b) in enumerate(zip(p(()), q(()), strict=True)):
            if b > 0:
                both = b * target_given_draft(p(()), q(()), x)[x]
                if a == 0:
                    out[x] = both
                    continue
                pairs = zip(p(()), q(()), strict=True)
                out[x] = both - 1 / sum(max(v / a, w / b) for v, w in pairs)
        return out

    return Claim(f"coupled, V = {vocab}: the chance to agree", models.symbols, differences)


def two_drafters(vocab: int) -> Claim:
    """Claim of `heterogeneous` that it is lossless for any two draft models."""
    laws = (FIRST, SECOND)
    verify, draft = partial(heterogeneous, laws=laws), partial(one_from_each, laws=laws)
    return lossless(verify, draft, vocab, (2,), drafts=2)


def any_selection(vocab: int) -> Claim:
    """Claim of `importance` that it is lossless whatever is selected from each pair of siblings."""
    models = Models(vocab, 1)
    for x, y in itertools.product(range(vocab), repeat=2):
        if x != y:
            models.symbols.add_number(f"first{x}{y}")

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)

        def select(p: Any, q: Any, siblings: Text) -> dict[int, Any]:
            x, y = siblings
            if x == y:
                return {x: 1}
            share = region.number(f"first{x}{y}")
            return {x: share, y: 1 - share}

        def program(choose: Any) -> Text:
            return importance(with_replacement(p, q, (2,), choose, ()), choose, select=select)

        return gaps(law(program, region), p, vocab, 2)

    says = f"importance, V = {vocab}, shape (2,), every selection: lossless"
    return Claim(says, models.symbols, differences)


def by_ratios(vocab: int) -> Claim:
    """Claim of `importance` that it is lossless with selection in proportion to p/q."""
    rule = RULES["importance"]
    return lossless(partial(importance, select=by_ratio), rule.draft, vocab, (2,))


def any_plan(name: str, vocab: int, shape: tuple[int, ...], certain: bool = False) -> Claim:
    """Claim of a rule that follows a plan that it keeps its contract for every plan there is.

    The plan is symbols: the share of each tuple that goes to each of its members. (Levels of one
    width share a plan.) The flow that the
    rule would compute is exchanged for it, and numbers are taken as exact; the rest is the rule. A
    rule with deferred commits is run at a node of any weight.
    """
    rule, module = RULES[name], import_module(f"specref.rules.{name}")
    is_deferred = name == "nested_transport"
    models = Models(vocab, len(shape), certain=certain)
    if is_deferred:
        sizes = range(1, max(shape) + 1)
        tuples = [t for k in sizes for t in itertools.permutations(range(vocab), k)]
        models.symbols.add_number("r")
    else:
        tuples = [t for k in shape for t in itertools.product(range(vocab), repeat=k)]
    for t in tuples:
        models.symbols.add_law(f"share{t}", len(set(t)) + 1)

    def differences(region: Region) -> dict[Any, Any]:
        p, q = models.on(region)

        def plan(mu: Mapping[Text, Any], wanted: Any) -> Mapping[Text, Mapping[int, Any]]:
            pi: dict[Text, Mapping[int, Any]] = {}
            for t, mass in mu.items():
                shares = region.law(f"share{t}") if t else ()
                members = dict.fromkeys(t)
                pi[t] = {x: mass * share for x, share in zip(members, shares, strict=False)}
            for x, mass in enumerate(wanted):
                if not sum(row.get(x, 0) for row in pi.values()) <= mass:
                    raise Outside
            return pi

        r = region.number("r") if is_deferred else 1

        def program(choose: Any) -> Text | None:
            root = rule.draft(p, q, shape, choose, ())
            if is_deferred:
                return module._visit(root, r, choose, distinct, plan) or None
            return rule.verify(root, choose)

        # The memory of the rule needs a hash, which symbols do not have.
        memory = "_shares" if is_deferred else "_conditional"
        forgetful = {memory: getattr(module, memory).__wrapped__}
        with patch.multiple(module, exact_law=tuple, plan=plan, **forgetful):
            return gaps(law(program, region), p, vocab, len(shape) + 1, r)

    says = f"{name}, V = {vocab}, shape {shape}{BEHIND * certain}, every plan: lossless"
    return Claim(says, models.symbols, differences)


def chains(vocab: int, length: int) -> list[Claim]:
    """Claim that `block` is the lemma's deferred form on chains, draft by draft, in law."""

    def deferred_form(root: Any, choose: Any) -> Text | None:
        return INSTANCES["block"](root, 1, choose)

    drafts = itertools.product(range(vocab), repeat=length)
    return [same(RULES["block"].verify, deferred_form, vocab, x, range(length)) for x in drafts]


def lenient_law(name: str, vocab: int) -> Claim:
    """Claim what a lenient rule emits at a position, and that no token gets more than p / l.

    With R = sum (q - p/l)+ the law is min(q, p/l) + R norm(residual), l a symbol, 0 < l <= 1.
    """
    verify: Any = RULES[name].verify
    models = Models(vocab, 1)
    models.symbols.add_number("lenience")

    def differences(region: Region) -> dict[Any, Any]:
        (target, draft), lenience = models.on(region), region.number("lenience")
        if not lenience > 0:
            raise Outside
        p, q = target(()), draft(())

        def first(choose: Any) -> int:
            root = with_replacement(target, draft, 1, choose, ())
            return int(verify(root, choose, lenience=lenience)[0])

        emitted = law(first, region)
        factor = 1 if name == "lenient" else lenience
        left = [max(a - factor * b, 0) for a, b in zip(p, q, strict=True)]
        refused = sum(max(b - a / lenience, 0) for a, b in zip(p, q, strict=True))
        out: dict[Any, Any] = {}
        for x, (a, b) in enumerate(zip(p, q, strict=True)):
            kept = min(b, a / lenience)
            share = refused * left[x] / sum(left) if refused > 0 else 0
            out[x] = emitted.pop(x, 0) - kept - share
            out[f"{x} above p/l"] = int(not kept + share <= a / lenience)
        return out | emitted

    says = f"{name}, V = {vocab}, every lenience: its law, and no token above p / l"
    return Claim(says, models.symbols, differences)


def ensemble_law(vocab: int) -> Claim:
    """Claim of `ensemble` that a drafted position has the law w p + (1 - w) q, w a symbol."""
    verify: Any = RULES["ensemble"].verify
    models = Models(vocab, 1)
    models.symbols.add_number("w")

    def differences(region: Region) -> dict[Any, Any]:
        (target, draft), w = models.on(region), region.number("w")

        def first(choose: Any) -> int:
            root = with_replacement(target, draft, 1, choose, ())
            return int(verify(root, choose, w=w)[0])

        emitted = law(first, region)
        for x, (a, b) in enumerate(zip(target(()), draft(()), strict=True)):
            emitted[x] = emitted.get(x, 0) - (w * a + (1 - w) * b)
        return emitted

    return Claim(f"ensemble, V = {vocab}, every weight: its law", models.symbols, differences)


def threshold_off(vocab: int, parents: tuple[int, ...]) -> list[Claim]:
    """Claim of `threshold` that with both thresholds 1 it is `target_only`, draft by draft."""
    verify: Any = RULES["threshold"].verify
    off = partial(verify, single=1, acc=1)
    drafts = itertools.product(range(vocab), repeat=len(parents))
    return [same(off, RULES["target_only"].verify, vocab, x, parents, False) for x in drafts]


LOSSY: dict[str, Callable[[], list[Claim]]] = {
    "lenient": lambda: [lenient_law("lenient", 2)],
    "lenient_scaled": lambda: [lenient_law("lenient_scaled", 2)],
    "ensemble": lambda: [ensemble_law(2)],
    "threshold": lambda: threshold_off(2, (0, 0)),
}
"""What is claimed of lossy rules: other laws than the target's."""

QUICK: dict[str, Callable[[], list[Claim]]] = {
    "token": lambda: [
        *rounds("token", (2, 1), (3, 1), (2, 2)),
        contract(INSTANCES["token"], with_replacement, 2, 1),
    ],
    "block": lambda: [
        *rounds("block", (2, 1), (3, 1), (2, 2)),
        contract(INSTANCES["block"], with_replacement, 2, 1),
        *chains(2, 2),
    ],
    "one_hot": lambda: [*on_every_draft("one_hot", 3, (0,)), *on_every_draft("one_hot", 2, (0, 1))],
    "match": lambda: [
        *on_every_draft("match", 3, (0, 0)),
        *on_every_draft("match", 2, (0, 1)),
        *rounds("match", (3, 1)),
    ],
    "greedy": lambda: [*greedy_drafts(3, (0, 0)), *greedy_drafts(2, (0, 1, 0))],
    "one_shot": lambda: [*rounds("one_shot", (2, 1), (3, 1)), *on_second_node("one_shot", 2)],
    "coupled": lambda: [
        *rounds("coupled", (2, 1), (3, 1)),
        *on_second_node("coupled", 2),
        met(2),
    ],
    "hierarchical": lambda: [
        *rounds("hierarchical", (2, 1), (3, 1)),
        *on_second_node("hierarchical", 2),
    ],
    "rrs_with": lambda: [
        *rounds("rrs_with", (2, (2,)), (2, (3,)), (3, (2,))),
        *on_second_node("rrs_with", (2, 2)),
    ],
    "rrs_without": lambda: [
        *rounds("rrs_without", (2, (2,)), (3, (2,)), (3, (3,))),
        *on_second_node("rrs_without", (1, 2)),
    ],
    "heterogeneous": lambda: [
        *rounds("heterogeneous", (2, (2,))),
        *on_second_node("heterogeneous", (2, 2)),
        two_drafters(2),
    ],
    "target_only": lambda: [
        *on_every_draft("target_only", 3, (0, 0)),
        *on_every_draft("target_only", 2, (0, 0, 1)),
    ],
    "traversal": lambda: [
        *rounds("traversal", (2, (2,)), (3, (2,))),
        *on_second_node("traversal", (1, 2)),
        contract(weighed("traversal"), without_replacement, 2, 2),
    ],
    "traversal_with": lambda: [
        *rounds("traversal_with", (2, (2,)), (3, (2,))),
        *on_second_node("traversal_with", (2, 2)),
        contract(weighed("traversal_with"), with_replacement, 2, 2),
    ],
    "k_seq": lambda: [
        *(k_seq_with_rho(2, (width,)) for width in (2, 3)),
        k_seq_with_rho(2, (1, 2), certain=True),
        *(rho_of_k(vocab, 2) for vocab in (2, 3)),
    ],
    "spec_hub": lambda: [
        *rounds("spec_hub", (2, (1,)), (2, (2,))),
        *on_second_node("spec_hub", (1, 2)),
        hub_is_first(3),
    ],
    "greedy_multi": lambda: [
        *rounds("greedy_multi", (2, (2,)), (3, (2,))),
        *on_second_node("greedy_multi", (1, 2)),
    ],
    "importance": lambda: [
        *rounds("importance", (2, (2,))),
        *on_second_node("importance", (2, 2)),
        by_ratios(2),
        any_selection(2),
    ],
    "transport": lambda: [
        any_plan("transport", 2, (1, 1), certain=True),  # before what takes longer to refute
        any_plan("transport", 2, (2,)),
    ],
    "nested_transport": lambda: [any_plan("nested_transport", 2, (2,))],
}
"""The claims of every lossless rule, at sizes that are checked in seconds."""

LONG: dict[str, Callable[[], list[Claim]]] = {
    "token": lambda: [
        *rounds("token", (4, 1)),
        contract(INSTANCES["token"], with_replacement, 3, 1),
    ],
    "block": lambda: [
        contract(INSTANCES["block"], with_replacement, 3, 1),
        *chains(3, 2),
        *chains(2, 3),
    ],
    "one_shot": lambda: rounds("one_shot", (2, 2)),
    "coupled": lambda: [*rounds("coupled", (2, 2)), met(3)],
    "heterogeneous": lambda: rounds("heterogeneous", (3, (2,)), (2, (1, 2))),
    "hierarchical": lambda: rounds("hierarchical", (2, 2)),
    "rrs_with": lambda: rounds("rrs_with", (2, (2, 2)), (3, (3,))),
    "rrs_without": lambda: rounds("rrs_without", (2, (2, 2)), (4, (2,))),
    "traversal": lambda: [
        *rounds("traversal", (2, (2, 1))),
        contract(weighed("traversal"), without_replacement, 3, 2),
    ],
    "traversal_with": lambda: [contract(weighed("traversal_with"), with_replacement, 3, 2)],
    "k_seq": lambda: [k_seq_with_rho(3, (2,))],
    "spec_hub": lambda: rounds("spec_hub", (3, (2,)), (2, (1, 2))),
    "greedy_multi": lambda: rounds("greedy_multi", (3, (3,)), (2, (1, 2))),
    "importance": lambda: rounds("importance", (3, (2,)), (2, (1, 2))),
    "transport": lambda: [any_plan("transport", 3, (1,))],
    "nested_transport": lambda: [any_plan("nested_transport", 3, (1,))],
    "lenient": lambda: [lenient_law("lenient", 3)],
    "ensemble": lambda: [ensemble_law(3)],
}
"""Claims at larger sizes, up to minutes each."""
