import importlib.util
import math
import sys
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from specref import dist
from specref.choice import Seeded, Trace, Uniforms, law
from specref.decode import (
    complete,
    decode,
    deviation,
    find_rule,
    lossless,
    output_law,
    round_law,
    target_law,
    verify,
)
from specref.dist import as_law, normalise, tv
from specref.draft import flat, likeliest, nodes
from specref.model import NGram, Table
from specref.philox import Domain, uniform
from specref.rules import RULES

ROWS = {(): [3, 2, 1], (0,): [1, 4, 2], (1,): [0, 1, 5], (2,): [2, 2, 3]}
DRAFT_ROWS = {(): [1, 2, 4], (0,): [3, 1, 1], (1,): [2, 3, 2], (2,): [1, 0, 1]}
P = Table({c: normalise(row) for c, row in ROWS.items()}, order=1, name="target")
Q = Table({c: normalise(row) for c, row in DRAFT_ROWS.items()}, order=1, name="draft")
SHARP = Table({c: [0, 0, 1] if c else [0, 1, 0] for c in ROWS}, order=1)

every_rule = pytest.mark.parametrize("name", RULES)
on_rows = pytest.mark.parametrize("name", [n for n, rule in RULES.items() if not rule.off_path])
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def target_of(name):
    return SHARP if RULES[name].one_hot_target else P


def shape_of(name):
    return 2 if RULES[name].shape == "chain" else (2,)


@every_rule
def test_composing_rounds_gives_the_law_of_the_decoding_loop(name):
    """Two routes to one law: text by text, and one program with every choice of every round."""
    rule, p = RULES[name], target_of(name)
    shape = 1 if rule.shape == "chain" else (2,)
    whole = law(lambda choose: decode(rule, p, Q, shape, 3, choose))
    assert whole == output_law(rule, p, Q, shape=shape, length=3, rounds=3)
    assert (whole == target_law(p, 3)) == rule.lossless


def test_both_routes_agree_on_a_lossy_pair_too():
    wrong = replace(RULES["token"], draft=likeliest)
    whole = law(lambda choose: decode(wrong, P, Q, 2, 4, choose))
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


def replay(name, p, q, shape, length, seed):
    """Decode with `verify`, one round at a time, each from its own start."""
    rule, text = RULES[name], ()
    while len(text) < length:
        root = rule.draft(p, q, shape, Seeded(seed, len(text)), text)
        order, (tokens, parents) = nodes(root), flat(root)
        done = verify(
            name, [n.p for n in order], [n.q for n in order], tokens, parents,
            seed=seed, start=len(text),
        )  # fmt: skip
        text += done.emitted
    return text[:length]


@on_rows
def test_a_seeded_loop_starts_each_round_at_its_own_draws(name):
    rule, p, shape = RULES[name], target_of(name), shape_of(name)
    for seed in range(5):
        text = decode(rule, p, Q, shape, 12, Seeded(seed))
        assert text == replay(name, p, Q, shape, 12, seed)
        trace = Trace(Seeded(seed))
        assert text == decode(rule, p, Q, shape, 12, trace)
        draws = [step.u for step in trace.steps]
        assert len(set(draws)) == len(draws), "no round meets the draws of another"


def test_a_seeded_loop_counts_its_context():
    whole = decode(RULES["match"], P, Q, 1, 5, Seeded(3), context=(0, 1))
    first = decode(RULES["match"], P, Q, 1, 1, Seeded(3), context=(0, 1))
    assert whole[:1] == first
    rule = RULES["match"]
    root = rule.draft(P, Q, 1, Seeded(3, 2), (0, 1))
    assert rule.verify(root, Seeded(3, 2))[:1] == first


ROW, DRAFT_ROW = ["1/2", "3/10", "1/5"], ["3/5", "1/10", "3/10"]
GIVEN = {
    "rule": "token",
    "p_rows": [ROW] * 4,
    "q_rows": [DRAFT_ROW] * 3,
    "drafts": [0, 2, 1],
    "uniforms": [0.7, 0.9, 0.2, 0.2],
}


def test_one_round_is_verified_with_its_trace():
    done = verify(**GIVEN)
    assert done.emitted == (0, 1)
    assert done.accepted == 1
    assert [step.outcome for step in done.trace.steps] == [True, False, 1]
    assert flat(done.root) == ((0, 2, 1), (0, 1, 2))


BAD = {
    "no target rows": (
        {"p_rows": [], "drafts": [], "q_rows": [], "uniforms": [0]},
        "p_rows is empty; pass one target row per drafted token and one more",
    ),
    "too few target rows": ({"p_rows": [ROW] * 3}, "p_rows has 3 rows; 3 drafts need 4"),
    "too many target rows": ({"p_rows": [ROW] * 5}, "p_rows has 5 rows; 3 drafts need 4"),
    "too few draft rows": ({"q_rows": [DRAFT_ROW] * 2}, "q_rows has 2 rows; 3 drafts need 4"),
    "too many draft rows": ({"q_rows": [DRAFT_ROW] * 5}, "q_rows has 5 rows; 3 drafts need 4"),
    "a ragged target row": (
        {"p_rows": [ROW, ["1/2", "1/2"], ROW, ROW]},
        r"p_rows\[1\] has 2 tokens, p_rows\[0\] 3",
    ),
    "a ragged draft row": (
        {"q_rows": [DRAFT_ROW, DRAFT_ROW, ["1/2", "1/2"]]},
        r"q_rows\[2\] has 2 tokens, p_rows\[0\] 3",
    ),
    "an empty row": ({"p_rows": [ROW, ROW, [], ROW]}, r"p_rows\[2\] sums to 0\.0, not 1"),
    "NaN in a target row": (
        {"p_rows": [ROW, ROW, ROW, [math.nan, 0.5, 0.5]]},
        r"p_rows\[3\]: nan is not a finite number",
    ),
    "infinity in a draft row": (
        {"q_rows": [[math.inf, 0, 0], DRAFT_ROW, DRAFT_ROW]},
        r"q_rows\[0\]: inf is not a finite number",
    ),
    "a negative entry": (
        {"p_rows": [ROW, [1.5, -0.5, 0], ROW, ROW]},
        r"p_rows\[1\]\[1\] = -1/2 is negative; laws have entries >= 0",
    ),
    "logits": (
        {"p_rows": [[2.0, 1.0, 0.5]] * 4},
        r"p_rows\[0\] sums to 3\.5, not 1; pass probabilities, not logits",
    ),
    "a batch of rows": (
        {"p_rows": np.full((1, 4, 3), 1 / 3)},
        r"p_rows\[0\]\[0\] is a row itself; pass one number per token as p_rows\[0\]",
    ),
    "a token outside": ({"drafts": [0, 3, 1]}, r"drafts\[1\] = 3 is outside 0 <= token < 3"),
    "a negative token": ({"drafts": [0, 2, -1]}, r"drafts\[2\] = -1 is outside 0 <= token < 3"),
    "a token that is no integer": (
        {"drafts": [0, 0.9, 1]},
        r"drafts\[1\] = 0\.9 is not an integer",
    ),
    "drafts as a string": ({"drafts": "021"}, "drafts = '021' is a str; write a list, one entry"),
    "a draft of mass zero": (
        {"q_rows": [DRAFT_ROW, ["1/2", "1/2", 0], DRAFT_ROW]},
        r"q_rows\[1\]\[2\] = 0, so drafts\[1\] = 2 cannot have been drawn from it; pass the law",
    ),
    "parents of a tree": (
        {"parents": [0, 0, 1], "q_rows": [DRAFT_ROW] * 4},
        "token verifies chains; leave parents out, or use a tree rule",
    ),
    "too few parents": (
        {"rule": "rrs_with", "parents": [0, 0], "q_rows": [DRAFT_ROW] * 4},
        "parents has 2 entries for 3 drafts",
    ),
    "a parent behind its child": (
        {"rule": "rrs_with", "parents": [0, 2, 1], "q_rows": [DRAFT_ROW] * 4},
        "parent 2 of node 2 does not stand before it",
    ),
    "a parent that is no integer": (
        {"rule": "rrs_with", "parents": [0, 0.0, 1], "q_rows": [DRAFT_ROW] * 4},
        r"parents\[1\] = 0\.0 is not an integer",
    ),
    "a tree without the rows of its leaves": (
        {"rule": "rrs_with", "parents": [0, 0, 1]},
        "q_rows has 3 rows; 3 drafts need 4",
    ),
    "equal siblings drawn without replacement": (
        {"rule": "rrs_without", "drafts": [2, 2, 1], "parents": [0, 0, 1],
         "q_rows": [DRAFT_ROW] * 4},
        "rrs_without needs siblings drawn without replacement; some are equal",
    ),
    "no draws": ({"uniforms": None}, "pass either uniforms= or seed="),
    "two sources of draws": ({"seed": 1}, "pass either uniforms= or seed="),
    "too few draws": (
        {"uniforms": [0.5] * 3},
        "uniforms has 3 draws; 3 drafts need 4: a coin for each and the terminal draw",
    ),
    "too many draws": ({"uniforms": [0.5] * 5}, "uniforms has 5 draws; 3 drafts need 4"),
    "a draw of one": ({"uniforms": [0.5, 0.5, 1.0, 0.5]}, r"uniforms\[2\] = 1 is outside \[0, 1\)"),
    "a negative draw": (
        {"uniforms": [0.5, -0.5, 0.5, 0.5]}, r"uniforms\[1\] = -1/2 is outside \[0, 1\)",
    ),
    "a draw that is no number": (
        {"uniforms": [0.5, 0.5, 0.5, math.nan]}, "uniforms: nan is not a finite number",
    ),
    "a row too few": ({"q_rows": DRAFT_ROW}, r"q_rows\[0\] = '.*' is a str; write a list"),
    "one number for the rows": ({"p_rows": 1}, "p_rows = 1 is no list; write one entry per place"),
    "one draft": ({"drafts": 0}, "drafts = 0 is no list; write one entry per place"),
    "one draw": ({"uniforms": 0.5}, r"uniforms = 0\.5 is no list; write one entry per place"),
    "draws of several rounds": (
        {"uniforms": np.zeros((1, 4))}, r"uniforms\[0\] is a row itself; pass one number per",
    ),
    "a seed that is no integer": (
        {"uniforms": None, "seed": 1.5}, r"seed = 1\.5 is not an integer; pass a number",
    ),
    "a seed outside": (
        {"uniforms": None, "seed": -1}, r"seed = -1 is outside 0 <= seed < 2\^64",
    ),
    "a start outside": (
        {"uniforms": None, "seed": 1, "start": 1 << 64}, "start = 18446744073709551616 is outside",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_round_that_does_not_fit_is_named_with_the_cure(case):
    changes, complaint = BAD[case]
    with pytest.raises(ValueError, match=complaint):
        verify(**GIVEN | changes)


def test_a_chain_may_leave_out_the_draft_row_that_nobody_reads():
    full = GIVEN | {"q_rows": [*GIVEN["q_rows"], [1, 0, 0]]}
    told = GIVEN | {"parents": [0, 1, 2]}
    assert verify(**full).emitted == verify(**told).emitted == verify(**GIVEN).emitted


def test_without_drafts_the_target_draws():
    assert verify("token", [ROW], [], [], uniforms=[0.79]).emitted == (1,)
    assert verify("token", [ROW], [], [], uniforms=["4/5"]).emitted == (2,)


def test_a_float_row_is_its_exact_values_over_their_exact_sum():
    row, draft = [0.1, 0.2, 0.7], [0.7, 0.1, 0.2]
    done = verify("token", [row] * 2, [draft], [0], uniforms=[0, 0])
    for given, kept in ((row, done.root.p), (draft, done.root.q)):
        exact = [F(w) for w in given]
        assert sum(exact) != 1
        assert list(kept) == [w / sum(exact) for w in exact]


def test_a_decision_at_the_exact_boundary_of_float_rows():
    row, draft = [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]
    p, q = normalise(map(F, row)), normalise(map(F, draft))
    chance = p[0] / q[0]
    at = verify("token", [row] * 2, [draft], [0], uniforms=[chance, 0])
    below = verify("token", [row] * 2, [draft], [0], uniforms=[chance - F(1, 10**40), 0])
    assert (at.accepted, below.accepted) == (0, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_rows_drafts_and_draws_may_be_arrays(dtype):
    given = {
        "p_rows": np.array([[0.5, 0.3, 0.2]] * 4, dtype),
        "q_rows": np.array([[0.6, 0.1, 0.3]] * 3, dtype),
        "drafts": np.array([0, 2, 1]),
        "uniforms": np.array([0.7, 0.9, 0.2, 0.2], dtype),
    }
    assert verify(**GIVEN | given).emitted == (0, 1)
    told = {"rule": "rrs_with", "parents": np.array([0, 1, 2])}
    assert verify(**GIVEN | given | told).emitted == (0, 1)


@needs_torch
def test_rows_drafts_and_draws_may_be_tensors():
    import torch

    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        given = {
            "p_rows": torch.tensor([[0.5, 0.3, 0.2]] * 4, dtype=dtype),
            "q_rows": torch.tensor([[0.6, 0.1, 0.3]] * 3, dtype=dtype),
            "drafts": torch.tensor([0, 2, 1]),
            "uniforms": torch.tensor([0.7, 0.9, 0.2, 0.2], dtype=dtype),
        }
        done = verify(**GIVEN | given)
        assert done.emitted == (0, 1)
        exact = [F(float(w)) for w in given["q_rows"][0]]
        assert list(done.root.q) == [w / sum(exact) for w in exact]
    with pytest.raises(ValueError, match=r"drafts\[0\] = tensor\(0\.\) is not an integer"):
        verify(**GIVEN | {"drafts": torch.tensor([0.0, 2.0, 1.0])})


@on_rows
def test_a_seed_stands_for_its_draws(name):
    p = [[0, 1, 0]] * 3 if RULES[name].one_hot_target else [ROW] * 3
    parents = [0, 1] if RULES[name].shape == "chain" else [0, 0]
    # Token 0 is the hub, and the likeliest.
    drafts = [0, 1] if RULES[name].own_drafts else [2, 1]
    seen = set()
    for start in range(40):
        coins = [uniform(17, start, node, Domain.COIN) for node in (1, 2)]
        row = [*coins, uniform(17, start, 0, Domain.TERMINAL)]
        by_seed = verify(name, p, [DRAFT_ROW] * 3, drafts, parents, seed=17, start=start)
        by_draws = verify(name, p, [DRAFT_ROW] * 3, drafts, parents, uniforms=row)
        assert by_seed.emitted == by_draws.emitted
        again = verify(name, p, [DRAFT_ROW] * 3, drafts, parents, seed=np.int64(17), start=start)
        assert again.emitted == by_seed.emitted
        seen.add(by_seed.emitted)
    assert len(seen) > 1 or not by_draws.trace.steps, "some rules draw nothing"


@on_rows
def test_one_round_is_the_rule_on_the_given_draft(name):
    rule, p, q = RULES[name], as_law(ROW), as_law(DRAFT_ROW)
    parents = [0, 1, 2] if rule.shape == "chain" else [0, 0, 1]
    for draws in ([0, 0, 0, 0], [0.4, 0.6, 0.1, 0.9], [0.99, 0.99, 0.99, 0.99]):
        done = verify(name, [p] * 4, [q] * 4, [0, 2, 1], parents, uniforms=draws)
        assert done.emitted == rule.verify(done.root, Uniforms(draws))


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
        done = verify(name, [ROW] * 3, [DRAFT_ROW] * 3, [2, 1], uniforms=[0.3, "2/3", 0.6])
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
