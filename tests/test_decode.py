import math
import sys
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from specref import dist
from specref.choice import law
from specref.decode import (
    complete,
    deviation,
    find_rule,
    lossless,
    output_law,
    round_law,
    target_law,
)
from specref.dist import normalise, tv
from specref.draft import likeliest
from specref.model import NGram, Table
from specref.rules import RULES
from specref.sampler import verify
from specref.stops import Stops

ROWS = {(): [3, 2, 1], (0,): [1, 4, 2], (1,): [0, 1, 5], (2,): [2, 2, 3]}
DRAFT_ROWS = {(): [1, 2, 4], (0,): [3, 1, 1], (1,): [2, 3, 2], (2,): [1, 0, 1]}
P = Table({c: normalise(row) for c, row in ROWS.items()}, order=1, name="target")
Q = Table({c: normalise(row) for c, row in DRAFT_ROWS.items()}, order=1, name="draft")
SHARP = Table({c: [0, 0, 1] if c else [0, 1, 0] for c in ROWS}, order=1)

every_rule = pytest.mark.parametrize("name", RULES)
on_rows = pytest.mark.parametrize("name", [n for n, rule in RULES.items() if not rule.off_path])


def target_of(name):
    return SHARP if RULES[name].one_hot_target else P


def shape_of(name):
    return 2 if RULES[name].shape == "chain" else (2,)


def full_rounds(rule, p, q, shape, length, choose):
    """Verify drafts of one shape until `length` tokens are there; what is too much is cut."""
    text = ()
    while len(text) < length:
        text += rule.verify(rule.draft(p, q, shape, choose, text), choose)
    return text[:length]


@every_rule
def test_composing_rounds_gives_the_law_of_one_program(name):
    """Two routes to one law: text by text, and one program with every choice of every round."""
    rule, p = RULES[name], target_of(name)
    shape = 1 if rule.shape == "chain" else (2,)
    whole = law(lambda choose: full_rounds(rule, p, Q, shape, 3, choose))
    assert whole == output_law(rule, p, Q, shape=shape, length=3, rounds=3)
    assert (whole == target_law(p, 3)) == rule.lossless


def test_both_routes_agree_on_a_lossy_pair_too():
    wrong = replace(RULES["token"], draft=likeliest)
    whole = law(lambda choose: full_rounds(wrong, P, Q, 2, 4, choose))
    assert whole == output_law(wrong, P, Q, shape=2, length=4, rounds=4)
    assert tv(whole, target_law(P, 4)) == deviation(wrong, P, Q, shape=2, length=4, rounds=4) > 0


def test_after_its_rounds_the_target_continues():
    wrong = replace(RULES["token"], draft=likeliest)
    by_rounds = [deviation(wrong, P, Q, shape=1, length=4, rounds=n) for n in (1, 2, 3, 4)]
    assert by_rounds == sorted(by_rounds)
    assert 0 < by_rounds[0] < by_rounds[3]


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.lossless])
def test_a_context_shifts_the_law(name):
    rule, p = RULES[name], target_of(name)
    out = output_law(rule, p, Q, shape=shape_of(name), length=2, rounds=2, context=(1, 2))
    assert out == target_law(p, 2, context=(2,)) == target_law(p, 2, context=(1, 2))
    assert out != target_law(p, 2) or p is SHARP


def test_completion_cuts_long_texts_and_extends_short_ones():
    emitted = {(0, 1, 2): F(1, 3), (0, 1, 0): F(1, 6), (): F(1, 4), (2, 2): F(1, 4)}
    out = complete(emitted, P, 2)
    by_hand = {(0, 1): F(1, 2), (2, 2): F(1, 4)}
    for text, mass in target_law(P, 2).items():
        by_hand[text] = by_hand.get(text, 0) + mass / 4
    assert out == by_hand
    assert sum(out.values()) == 1


def test_completion_ends_where_the_target_would():
    """Two routes to one law: stops on the way, or all texts cut at their first end afterwards."""
    emitted = {(0, 1, 2): F(1, 3), (0,): F(1, 6), (): F(1, 4), (2, 2): F(1, 4)}
    stops = Stops(max_tokens=3, eos=1, stop=[(2, 0)])
    cut = {}
    for text, mass in complete(emitted, P, 3).items():
        cut[stops.cut(text)] = cut.get(stops.cut(text), 0) + mass
    assert complete(emitted, P, stops) == cut
    assert {(0, 1), (2, 0), (2, 2, 2)} < set(cut)


@every_rule
def test_a_round_emits_between_one_token_and_one_more_than_its_depth(name):
    shape = shape_of(name)
    out = round_law(RULES[name], target_of(name), Q, shape)
    assert sum(out.values()) == 1
    assert {len(text) for text in out} <= set(range(1, (2 if shape == 2 else 1) + 2))


def test_a_target_of_its_own_is_compared_with_and_continues():
    sharp = Table({c: dist.keep(row, dist.top(row, 2)) for c, row in P.rows.items()}, order=1)
    assert deviation("token", sharp, Q, shape=2, length=3) == 0
    loss = deviation("token", sharp, Q, shape=2, length=3, target=P)
    by_hand = complete(round_law(RULES["token"], sharp, Q, 2), P, 3)
    assert loss == tv(by_hand, target_law(P, 3)) > 0


def test_a_rule_may_be_given_by_name_or_as_a_rule():
    wrong = replace(RULES["token"], draft=likeliest)
    assert find_rule("token") is RULES["token"]
    assert find_rule(wrong) is wrong
    assert lossless("token", P, Q, shape=1, length=2)
    assert not lossless(wrong, P, Q, shape=1, length=2)


def test_a_deviation_is_a_fraction():
    wrong = replace(RULES["token"], draft=likeliest)
    assert type(deviation(wrong, P, Q, shape=1, length=2)) is F
    assert type(deviation("greedy", SHARP, Q, shape=1, length=2)) is F


@pytest.mark.parametrize("rule", ["tokens", None, 7, []])
def test_an_unknown_rule_is_answered_with_the_known_ones(rule):
    for call in (
        lambda: deviation(rule, P, Q, shape=1, length=1),
        lambda: lossless(rule, P, Q, shape=1, length=1),
        lambda: verify(rule, [[1]], [], [], seed=0),
    ):
        with pytest.raises(KeyError, match=r"there is no rule .*; rules are token, "):
            call()


FAIR = (F(1, 2), F(1, 2))


@pytest.mark.parametrize(
    ("p", "q", "changes", "complaint"),
    [
        (FAIR, FAIR, {"length": 0}, "length = 0 is below 1; compare at least 1 token"),
        (FAIR, FAIR, {"length": 2.5}, r"length = 2\.5 is not an integer; compare"),
        (FAIR, FAIR, {"rounds": 0}, "rounds = 0 is below 1; run at least 1"),
        (FAIR, FAIR, {"rounds": 1.5}, r"rounds = 1\.5 is not an integer; run at least 1"),
        (FAIR, FAIR, {"shape": -1}, "shape = -1 is negative; pass a depth >= 0"),
        (FAIR, FAIR, {"shape": 1.5}, r"shape = 1\.5 is not an integer; pass a depth >= 0"),
        (FAIR, FAIR, {"shape": (2,)}, r"shape = \(2,\) is a tree, but token verifies chains; pass"),
        (0.5, FAIR, {}, r"p\(\(\)\) = 0\.5 is no list"),
        ((F(1, 2), F(1, 3)), FAIR, {}, r"p\(\(\)\) sums to 5/6, not 1"),
        (FAIR, (0.1, 0.2, 0.7), {}, r"q\(\(\)\) sums to 1 -2\.78e-17, not 1; floats count"),
        (FAIR, (math.nan, 0.5), {}, r"q\(\(\)\): nan is not a finite number"),
        (FAIR, (F(3, 2), F(-1, 2)), {}, r"q\(\(\)\)\[1\] = -1/2 is negative"),
        (FAIR, (1, 0, 0), {}, "p has 2 tokens and q 3; pad the smaller"),
    ],
)
def test_what_cannot_be_compared_is_refused(p, q, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        deviation("token", lambda _: p, lambda _: q, **{"shape": 1, "length": 2} | changes)


@pytest.mark.parametrize(
    "row", [(1, 0), [0.5, 0.5], ["1/4", "3/4"], np.array([0.25, 0.75], np.float32)]
)
@pytest.mark.parametrize("name", ["token", "one_hot", "match", "target_only"])
def test_models_may_return_any_numbers_that_are_exactly_a_law(name, row):
    for q in ((F(1, 3), F(2, 3)), (1, 0)):
        assert deviation(name, lambda _: row, lambda _, q=q: q, shape=1, length=2, rounds=2) == 0


def test_an_ngram_drafter_serves_an_ngram_target():
    text = [0, 1, 2, 0, 1, 1, 2, 2, 0, 2, 1, 0]
    p, q = NGram(text, order=2), NGram(text[:6], order=1, vocab=3)
    assert lossless("one_hot", p, q, shape=3, length=4, rounds=2)
    assert lossless("token", p, q, shape=3, length=4, rounds=2)


def forget():
    """Empty the memories of plans and thresholds: they hold numbers of the type in use."""
    for name, module in list(sys.modules.items()):
        if name.startswith("specref."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@on_rows
def test_results_are_the_same_on_plain_fractions(name, monkeypatch):
    """Besides the subprocess of test_dist: the same calls with the fast type taken away."""

    def results():
        p = Table({c: normalise(row) for c, row in ROWS.items()}, order=1)
        q = Table({c: normalise(row) for c, row in DRAFT_ROWS.items()}, order=1)
        rule, shape = RULES[name], shape_of(name)
        wrong = rule if rule.own_drafts else replace(rule, draft=likeliest)
        rows = [[["1/2", "3/10", "1/5"]] * 3, [["3/5", "1/10", "3/10"]] * 3]
        done = verify(name, *rows, [2, 1], uniforms=[0.3, "2/3", 0.6])
        return (
            deviation(wrong, p, q, shape=shape, length=2),
            deviation(rule, p, q, shape=shape, length=2, rounds=2),
            round_law(rule, p, q, shape),
            done.emitted,
            [step[:3] for step in done.trace.steps],
        )

    fast = results()
    monkeypatch.setattr(dist, "_Rational", F)
    forget()
    slow = results()
    forget()
    assert fast == slow
    assert all(type(mass) is F for mass in slow[2].values() if mass != 1)


def test_a_model_is_a_callable():
    with pytest.raises(ValueError, match=r"q = 0\.5 is no model; pass a callable from a context"):
        deviation("token", lambda _: FAIR, 0.5, shape=1, length=1)


def test_widths_of_one_are_a_chain():
    assert deviation("token", lambda _: FAIR, lambda _: (1, 0), shape=(1, 1), length=2) == 0
