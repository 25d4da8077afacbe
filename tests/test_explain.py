"""Explanations. Snapshots are rewritten with SPECREF_SNAPSHOTS=write (see snapshot.py)."""

import re
import subprocess
import sys
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specref.choice import law
from specref.decode import verify
from specref.dist import as_fraction, excess, normalise
from specref.explain import emitted_law, explain, leaves, read, uniforms
from specref.rules import RULES
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
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_an_explanation_reads_as_it_did(name):
    (rule, p, q, x), u = SNAPSHOTS[name]
    draft = read(rule, p, q, x)
    text = explain(draft, None if u is None else uniforms(u, draft))
    assert max(map(len, text.splitlines())) <= 80
    snapshot.check(name, text)


def test_every_rule_has_an_example():
    assert {rule for (rule, *_), _ in SNAPSHOTS.values()} == set(RULES)


@st.composite
def drafts(draw, rule):
    """A small draft that the rule can be handed, as it is written on the command line."""
    vocab = draw(st.integers(2, 4))
    count = draw(st.integers(0, 3))
    entry = RULES[rule]

    def row(positive=False):
        weights = st.integers(int(positive), 5)
        weights = draw(st.lists(weights, min_size=vocab, max_size=vocab).filter(any))
        return ",".join(str(as_fraction(w)) for w in normalise([F(w) for w in weights]))

    tokens = draw(
        st.lists(
            st.integers(0, vocab - 1),
            min_size=min(count, vocab),
            max_size=min(count, vocab),
            unique=rule == "rrs_without",
        )
    )
    p = [row() for _ in range(len(tokens) + 1)]
    q = [row(entry.drafts_from_q) for _ in range(len(tokens) + 1)]
    if entry.one_hot_target:
        p = [",".join(str(int(x == y)) for x in range(vocab)) for y in [0] * len(p)]
    return read(rule, p, q, ",".join(map(str, tokens)))


every_rule = pytest.mark.parametrize("rule", RULES)


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
    for a, b, chance in re.findall(r"p'? = (\S+), q'? = (\S+), min\(1, p'?/q'?\) = ([\d/]+)", text):
        assert F(chance) == min(1, F(a) / F(b))
    for accepted, refused in re.findall(r"with chance (\S+), refused with chance (\S+)\.", text):
        assert F(accepted) + F(refused) == 1


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
        (("rrs_without", [P], [Q], "1,1"), "siblings drawn without replacement; some are equal"),
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
