"""Explanations. Snapshots are rewritten with SPECREF_SNAPSHOTS=write (see snapshot.py)."""

import re
import subprocess
import sys
from fractions import Fraction as F

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specref.choice import law
from specref.dist import as_fraction, excess, normalise
from specref.draft import flat
from specref.explain import emitted_law, explain, leaves, read, uniforms
from specref.explain.formulas import Coin, correction, named
from specref.explain.given import coins
from specref.rules import RULES
from specref.sampler import verify
from tests import snapshot

P, Q = "1/2,3/10,1/5", "1/5,1/5,3/5"

SNAPSHOTS = {
    "explain-token": (("token", [P], ["3/5,1/10,3/10"], "2,0"), "0.3,7/10,0.9"),
    "explain-token-rows": (("token", [P, "0,1,0", "1/4,1/4,1/2"], [Q, P], "2,0"), "0,0,0"),
    "explain-nothing": (("token", [P], [Q], ""), "0.6"),
    "explain-one_hot": (("one_hot", [P], [], "2,1"), "0.1,0.7,0.9"),
    "explain-match": (("match", [P], [], "2,1"), "0.85,0.2,0"),
    "explain-greedy": (("greedy", ["1,0,0", "0,1,0", "0,0,1"], [], "0,2"), "0,0,0"),
    "explain-greedy-soft": (("greedy", [P], [], "0,0"), None),
    "explain-rrs_with": (("rrs_with", [P], [Q], "2,2,1"), "0.9,0.1,0.5,0.2"),
    "explain-rrs_without": (("rrs_without", [P], [Q], "2,1"), "0.9,0.9,0.5"),
    "explain-target_only": (("target_only", [P, P, Q], [], "2,1"), "0.4,0,0.9"),
    "explain-target_only-twice": (("target_only", [P], [], "2,2"), "0.2,0,0.9"),
    "explain-block": (("block", [P], [Q], "2,1,2"), "0.9,0.05,0.95,0.3"),
    "explain-one_shot": (("one_shot", [P], [Q], "2,0"), "0.1,0.9,0.3"),
    "explain-coupled": (("coupled", [P], [Q], "2,1"), "0.1,0.9,0.3"),
    "explain-heterogeneous": (("heterogeneous", [P], [Q], "2,1"), "0.9,0.8,0.3"),
    "explain-traversal": (("traversal", [P], [Q], "2,1"), "0.9,0.1,0.3"),
    "explain-traversal_with": (("traversal_with", [P], [Q], "2,2"), "0.9,0.8,0.3"),
    "explain-nested_transport": (("nested_transport", [P], [Q], "2,1"), "0.9,0.1,0.3"),
    "explain-typical": (("typical", [P], [], "2,1"), "0,0,0"),
    "explain-lenient": (("lenient", [P], [Q], "2,0"), "0.9,0.1,0.3"),
    "explain-lenient_scaled": (("lenient_scaled", [P], [Q], "2,0"), "0.9,0.1,0.3"),
    "explain-threshold": (("threshold", [P], [], "2,1"), "0.4,0,0.9"),
    "explain-ensemble": (("ensemble", [P], [Q], "2,0"), "0.9,0.1,0.3"),
    "explain-k_seq": (("k_seq", ["1/2,1/3,1/6"], ["1/6,1/3,1/2"], "2,1"), "0.9,0.8,0.3"),
    "explain-spec_hub": (("spec_hub", [P], [Q], "2,1"), "0.9,0.6,0.3"),
    "explain-greedy_multi": (("greedy_multi", [P], [Q], "2,1"), "0.9,0.6,0.3"),
    "explain-importance": (("importance", [P], ["3/5,1/5,1/5"], "0,1"), "0.9,0.6,0.3"),
    "explain-transport": (("transport", ["1/2,1/3,1/6"], ["1/6,1/3,1/2"], "2,1"), "0.9,0.8,0.3"),
}

EXPLAINED = [name for name, rule in RULES.items() if not rule.off_path]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_an_explanation_reads_as_it_did(name):
    (rule, p, q, x), u = SNAPSHOTS[name]
    draft = read(rule, p, q, x)
    text = explain(draft, None if u is None else uniforms(u, draft))
    assert max(map(len, text.splitlines())) <= 80
    snapshot.check(name, text)


def test_every_rule_has_an_example():
    assert {rule for (rule, *_), _ in SNAPSHOTS.values()} == set(EXPLAINED)


class Drawn:
    """The reading that lets Hypothesis choose."""

    def __init__(self, draw):
        self.draw = draw

    def __call__(self, weights, at=None):
        return self.draw(st.sampled_from([x for x, w in enumerate(weights) if w > 0]))


@st.composite
def drafts(draw, rule):
    """A small draft that the rule can be handed, as it is written on the command line."""
    vocab = draw(st.integers(2, 4))
    entry = RULES[rule]
    count = draw(st.integers(0, min(vocab, entry.width or 3)))

    def row():
        weights = draw(st.lists(st.integers(0, 5), min_size=vocab, max_size=vocab).filter(any))
        return normalise([F(w) for w in weights])

    p, q = ([row() for _ in range(count + 1)] for _ in "pq")
    if entry.one_hot_target:
        p = [tuple(F(x == y) for x in range(vocab)) for y in [0] * len(p)]
    if not entry.drafts_from_q:
        token = st.integers(0, vocab - 1)
        tokens = draw(st.lists(token, min_size=count, max_size=count))
    else:
        shape = count if entry.shape == "chain" else (count,) * (count > 0)
        model = lambda context: q[len(context)]  # noqa: E731
        tokens, _ = flat(entry.draft(model, model, shape, Drawn(draw), ()))
    rows = [[",".join(map(str, law)) for law in laws[: len(tokens) + 1]] for laws in (p, q)]
    return read(rule, *rows, ",".join(map(str, tokens)))


def every_rule(test):
    """Try 8 drafts of every rule that can be explained."""
    return pytest.mark.parametrize("rule", EXPLAINED)(settings(max_examples=8)(test))


@every_rule
@given(st.data())
def test_the_table_is_the_exact_law(rule, data):
    draft = data.draw(drafts(rule))
    root = draft.root
    exact = law(lambda choose: RULES[rule].verify(root, choose))
    assert emitted_law(draft) == exact
    assert sum(leaf.chance for leaf in leaves(draft)) == 1
    text = explain(draft)
    rows = re.findall(r"^  \(([\d, ]*)\) +(\S+) +\d\.\d{6}$", text, re.MULTILINE)
    told = {tuple(int(x) for x in key.split(", ")): F(mass) for key, mass in rows}
    assert told == exact
    length = sum(len(out) * mass for out, mass in exact.items())
    assert f"Expected length {length}:" in text


@every_rule
@given(st.data())
def test_a_run_on_given_draws_emits_what_verify_emits(rule, data):
    draft = data.draw(drafts(rule))
    count = len(draft.tokens) + 1
    draws = [F(data.draw(st.integers(0, 23)), 24) for _ in range(count)]
    text = explain(draft, draws)
    done = verify(rule, draft.p, draft.q, draft.tokens, draft.parents, uniforms=draws)
    tokens = ", ".join(map(str, done.emitted))
    last = f"The round emits ({tokens}): {done.accepted} accepted and one more."
    assert text.splitlines()[-1] == last
    told = set(map(int, re.findall(r"u\[(\d+)\]", text)))
    assert told == set(range(count))


@every_rule
@given(st.data())
def test_every_formula_has_the_value_that_is_told(rule, data):
    text = " ".join(explain(data.draw(drafts(rule))).split())
    for told in re.findall(r"(?:Draft|Sibling|beginning) [^:]*: (.*?)\. ", text):
        values = dict(re.findall(r"(\S+) = ([\d/]+)", told))
        for a, b, chance in re.findall(r"min\(1, ([^\s(]+)/([^\s()]+)\) = ([\d/]+)", told):
            assert F(chance) == min(1, F(values[a]) / F(values[b]))
    for accepted, refused in re.findall(r"with chance (\S+), refused with chance (\S+)\.", text):
        assert F(accepted) + F(refused) == 1


@every_rule
@given(st.data())
def test_every_coin_and_every_correction_has_its_formula(rule, data):
    draft = data.draw(drafts(rule))
    for index in coins(draft):
        assert named(Coin(draft, index))
    for leaf in leaves(draft):
        end = leaf.steps[-1] if leaf.steps else None
        kept = len(leaf.emitted) - 1
        at = kept if RULES[rule].shape == "chain" else 0
        if end and end.at is None and at == kept < len(draft.tokens):
            assert correction(draft, at, end.weights)


@given(st.data())
def test_the_steps_of_a_deferred_chain_multiply_to_the_table(data):
    draft = data.draw(drafts("block"))
    assume(len(draft.tokens) > 1)
    text = " ".join(explain(draft).split())
    assert not re.search("Draft|ccepted with", text)
    steps = re.findall(r"The beginning ([\d, ]+): .*?(Never|Always|chance (\S+),)", text)
    reached, kept = F(1), {}
    for tokens, word, number in steps:
        chance = {"Never": F(0), "Always": F(1)}.get(word) if not number else F(number)
        kept[len(tokens.split(", "))] = reached * chance
        reached *= 1 - chance
    kept[0] = reached
    by_length = dict.fromkeys(range(len(draft.tokens) + 1), F(0))
    for out, mass in emitted_law(draft).items():
        by_length[len(out) - 1] += as_fraction(mass)
    assert {k: v for k, v in kept.items() if v} == {k: v for k, v in by_length.items() if v}


@pytest.mark.parametrize(
    ("rule", "p", "q", "x", "formula"),
    [
        ("one_shot", P, Q, "0", "p/(M q)"),
        ("k_seq", P, Q, "2,1", "min(1, p/(rho q))"),
        ("heterogeneous", P, Q, "2,0", "min(1, p'/u)"),
        ("transport", "1/2,1/3,1/6", "1/6,1/3,1/2", "2,1", "pi/m"),
        ("nested_transport", P, Q, "2,1", "pi/m"),
        ("importance", P, Q, "2,1", "min(1, p/p_I)"),
    ],
)
def test_a_formula_that_is_right_by_coincidence_is_not_named(rule, p, q, x, formula):
    # Min(1, p/q) or another that is tried before has the same value on each of these drafts.
    draft = read(rule, [p], [q], x)
    value = named(Coin(draft, len(draft.tokens)))[1]
    assert value.name == formula
    assert value.chance == coins(draft)[len(draft.tokens)]


def test_siblings_that_are_never_tested_are_told():
    text = explain(read("transport", [P], [Q], "0,2,1"))
    assert "Sibling 2 is never tested on this draft.\nSibling 1 is never tested" in text


@pytest.mark.parametrize("rule", ["token", "one_hot"])
@given(st.data())
def test_the_steps_of_a_chain_multiply_to_the_table(rule, data):
    draft = data.draw(drafts(rule))
    text = " ".join(explain(draft).split())
    steps = re.findall(r"Draft (\d+) at position \d+: .*?(Never|Always|chance (\S+),)", text)
    reached, stopped = F(1), {}
    for at, (_, word, number) in enumerate(steps):
        chance = {"Never": F(0), "Always": F(1)}.get(word) if not number else F(number)
        stopped[at] = reached * (1 - chance)
        reached *= chance
    stopped[len(draft.tokens)] = reached
    by_length = dict.fromkeys(range(len(draft.tokens) + 1), F(0))
    for out, mass in emitted_law(draft).items():
        by_length[len(out) - 1] += as_fraction(mass)
    assert {k: v for k, v in stopped.items() if v} == {k: v for k, v in by_length.items() if v}


@given(st.data())
def test_the_residual_is_named_only_if_it_is_the_law_drawn_from(data):
    draft = data.draw(drafts("token"))
    text = " ".join(explain(draft).split())
    named = re.findall(r"norm\(\(p - q\)\+\) = \(([^)]*)\)", text)
    possible = []
    for at in range(len(draft.tokens)):
        p, q = draft.p[at], draft.q[at]
        if any(a > b for a, b in zip(p, q, strict=True)):
            possible.append([as_fraction(w) for w in excess(p, q)])
    for row in named:
        assert [F(w) for w in row.split(", ")] in possible
    refusals = sum(0 < chance < 1 for chance in _chances(draft))
    assert len(named) >= min(1, refusals)


def _chances(draft):
    for at, x in enumerate(draft.tokens):
        yield min(1, draft.p[at][x] / draft.q[at][x])
        if draft.p[at][x] == 0:
            return


def test_floats_as_text_are_exact_decimals():
    draft = read("token", ["0.1,0.9"], ["0.25,0.75"], "0")
    assert emitted_law(draft)[(1,)] == F(6, 10)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("token", [P], [], "2"), "--q is missing"),
        (("token", [], [Q], "2"), "--p is given 0 times; give it one for every position, or 2"),
        (("token", [P] * 3, [Q], "2"), "--p is given 3 times"),
        (
            ("token", [P], [Q] * 4, "2,0"),
            "--q is given 4 times; give it one for every position, or",
        ),
        (("token", ["1/2,1/4"], [Q], "1"), "--p 1/2,1/4 sums to 3/4, not 1"),
        (("token", ["3/2,-1/2"], [Q], "1"), "--p gives token 1 the chance -1/2"),
        (("token", ["half,half"], [Q], "1"), "--p: 'half' is not a finite number"),
        (("token", ["1/0,1"], [Q], "1"), "--p: '1/0' is not a finite number"),
        (("token", [P], ["1/2,1/2"], "1"), "--q has a row of 2 tokens; --p has 3"),
        (("token", [P], [Q], "3"), "--x has token 3; tokens are 0 to 2"),
        (("token", [P], [Q], "-1"), "--x has '-1'"),
        (("token", [P], [Q], "a"), "--x has 'a'"),
        (("token", [P], ["0,1/2,1/2"], "0"), "--x has token 0, which --q never proposes there"),
        (
            ("rrs_without", [P], [Q], "1,1"),
            "--x 1,1: rrs_without needs siblings drawn without replacement; some are equal",
        ),
        (("hierarchical", [P], [Q], "2"), "--p and --q are rows of this draft alone; run"),
        (("heterogeneous", [P], [Q], "2,1,0"), "--x has 3 siblings; heterogeneous verifies 2"),
        (
            ("spec_hub", [P], [Q], "1,0"),
            "--x 1,0 is no draft for spec_hub: its drafter, hub_pairs, never makes it from --q; "
            "pass --x 0,2 or 1,2 or 2,0 or 2,1",
        ),
        (("greedy_multi", [P], [Q], "1,2"), "pass --x 2,0 or 2,1"),
        (("nested_transport", [P], [Q], "1,1"), "pass --x 0,1 or 0,2 or 1,0"),
        (("nested_transport", ["1/4,1/4,1/2"], ["1/2,1/2,0"], "0,1,1"), "draft fewer tokens"),
    ],
)
def test_mistakes_are_named_with_their_argument(args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(*args)


@pytest.mark.parametrize(
    ("u", "message"),
    [
        ("0.5", "--u has 1 draws; this round has 2"),
        ("1,0", "--u has 1; draws are in 0 <= u < 1"),
        ("x,0", "--u: 'x' is not a finite number"),
    ],
)
def test_mistakes_in_the_draws_are_named(u, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        uniforms(u, read("token", [P], [Q], "2"))


def test_an_unknown_rule_is_named():
    with pytest.raises(KeyError, match="no rule 'tokn'"):
        read("tokn", [P], [Q], "2")


def test_equal_rows_of_p_are_told_once_and_others_one_by_one():
    assert "p          (1/2, 3/10, 1/5)  everywhere" in explain(read("token", [P], [Q], "2"))
    text = explain(read("token", [P, Q], [Q], "2"))
    assert "p[1]       (1/5, 1/5, 3/5)" in text
    assert "the bonus is drawn from p[1] = (1/5, 1/5, 3/5)." in text


def test_explaining_needs_neither_arrays_nor_a_terminal_library():
    run = subprocess.run(
        [sys.executable, "-c", "import sys, specref.explain; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not {"numpy", "torch", "rich", "typer"} & set(run.stdout.split())
