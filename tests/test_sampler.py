"""The importable samplers: `verify` for one round on given laws, `generate` for whole sequences."""

import importlib.util
import math
from collections import Counter
from fractions import Fraction as F

import numpy as np
import pytest

import specref
from specref.choice import Seeded, Uniforms, inverse_cdf
from specref.decode import decode, target_law
from specref.dist import as_law, normalise
from specref.draft import flat, likeliest, one_from_each, with_replacement, without_replacement
from specref.drafters import confident, parallel_heads, prompt_lookup
from specref.gate.evidence import weigh
from specref.logits import Parameters, Process, weights
from specref.model import NGram, Table
from specref.philox import Domain, uniform
from specref.rules import RULES
from specref.sampler import Count, generate, verify
from specref.stops import Stops

on_rows = pytest.mark.parametrize("name", [n for n, rule in RULES.items() if not rule.off_path])
every_rule = pytest.mark.parametrize("name", RULES)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

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


ROWS = {(): [3, 2, 1], (0,): [1, 4, 2], (1,): [2, 1, 5], (2,): [2, 2, 3]}
DRAFT_ROWS = {(): [1, 2, 4], (0,): [3, 1, 1], (1,): [2, 3, 2], (2,): [1, 0, 1]}
TARGET = Table({c: normalise(row) for c, row in ROWS.items()}, order=1, name="target")
DRAFT = Table({c: normalise(row) for c, row in DRAFT_ROWS.items()}, order=1, name="draft")
SHARP = Table({c: [0, 0, 1] if c else [0, 1, 0] for c in ROWS}, order=1)


def target_of(name):
    return SHARP if RULES[name].one_hot_target else TARGET


def test_a_sequence_is_generated():
    done = specref.generate(TARGET, DRAFT, gamma=3, max_tokens=12, eos=2, seed=2)
    assert done.reason in ("eos", "length")
    assert (done.reason == "eos") == (done.tokens[-1] == 2)
    assert 2 not in done.tokens[:-1]
    assert sum(count.emitted for count in done.rounds) == len(done.tokens) <= 12
    assert all(type(x) is int for x in done.tokens)


@every_rule
def test_it_is_the_decoding_loop_on_seeded_draws(name):
    p, gamma = target_of(name), 2 if RULES[name].shape == "chain" else (2, 1)
    ends = {"eos": 0, "stop": [(1, 2), (2, 2)], "max_tokens": 7}
    for seed in range(8):
        done = generate(p, DRAFT, rule=name, gamma=gamma, prompt=(1, 0), seed=seed, **ends)
        stops = Stops(**ends)
        assert done.tokens == decode(name, p, DRAFT, gamma, stops, Seeded(seed), (1, 0))
        assert done.reason == stops.reason(done.tokens)
        again = generate(p, DRAFT, rule=RULES[name], gamma=gamma, prompt=[1, 0], seed=seed, **ends)
        assert again == done


@every_rule
def test_rounds_are_counted(name):
    rule = RULES[name]
    p, gamma = target_of(name), 3 if rule.shape == "chain" else (2, 1, 1)
    for seed in range(10):
        done = generate(p, DRAFT, rule=name, gamma=gamma, max_tokens=9, eos=0, seed=seed)
        assert sum(count.emitted for count in done.rounds) == len(done.tokens)
        for count in done.rounds:
            assert 1 <= count.emitted <= 4
            if rule.off_path:
                assert count.accepted is None
            else:
                assert count.accepted <= count.drafted
                assert count.emitted == count.accepted + 1 or count is done.rounds[-1]
                assert count.emitted >= count.accepted


def test_what_an_end_cuts_is_not_counted():
    def says(*tokens):
        rows = {n: [int(x == t) for x in range(3)] for n, t in enumerate(tokens)}
        return lambda context: rows[len(context)]

    p = says(0, 1, 2, 0, 0)
    done = generate(p, p, gamma=4, max_tokens=9, eos=2)
    assert done == ((0, 1, 2), "eos", (Count(drafted=3, accepted=3, emitted=3),))
    done = generate(p, p, gamma=2, max_tokens=9, eos=2)
    assert done.rounds == (Count(2, 2, 3),)
    done = generate(p, p, gamma=4, max_tokens=9, stop=[(0, 1)])
    assert done == ((0, 1), "stop", (Count(2, 2, 2),))
    done = generate(p, says(0, 0, 0, 0), gamma=2, max_tokens=3)
    assert done == ((0, 1, 2), "length", (Count(2, 1, 2), Count(0, 0, 1)))


def test_a_seed_stands_for_a_sequence_and_another_for_another():
    def run(seed):
        return generate(TARGET, DRAFT, gamma=2, max_tokens=20, seed=seed).tokens

    seeds = [0, 1, 2, 3, 2**32, 2**63, 2**64 - 1]
    found = [run(seed) for seed in seeds]
    assert [run(seed) for seed in reversed(seeds)] == found[::-1], "history does not matter"
    assert len(set(found)) == len(seeds)
    assert run(np.uint64(2**64 - 1)) == found[-1]


SAMPLED = {
    "token": {"gamma": 2},
    "block": {"gamma": lambda text: 3 - len(text) % 3},
    "match": {"gamma": 2},
    "hierarchical": {"gamma": 2},
    "rrs_without": {"gamma": (2,)},
}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_sample_of_sequences_has_the_law_of_plain_decoding(name):
    from scipy.stats import chisquare

    n, asked = 2000, {"max_tokens": 3, "eos": 2, "stop": [(0, 0)], "min_tokens": 1}
    law = target_law(TARGET, Stops(**asked), context=(1,))
    assert len(law) > 10
    seeds = range(1000, 1000 + n)
    counts = Counter(
        generate(TARGET, DRAFT, rule=name, prompt=(1,), seed=seed, **asked, **SAMPLED[name]).tokens
        for seed in seeds
    )
    evidence = weigh(law, counts, tv=0.02)
    assert not evidence.alarm(tests=1)
    assert min(law.values()) * n > 5, "no cell needs to be merged"
    expected = [float(law[text]) * n for text in law]
    assert chisquare([counts[text] for text in law], expected).pvalue > 1e-3
    other = target_law(TARGET, Stops(**asked), context=(0,))
    assert weigh(other, counts, tv=0.02).alarm(tests=1), "the law after another prompt is refuted"


def test_plain_decoding_draws_by_the_inverse_distribution_function():
    done = generate(TARGET, None, gamma=0, max_tokens=6, seed=9, prompt=(2,))
    text = (2,)
    for _ in range(6):
        text += (inverse_cdf(TARGET(text), uniform(9, len(text), 0, Domain.TERMINAL)),)
    assert done == (text[1:], "length", (Count(0, 0, 1),) * 6)


def test_without_a_limit_to_speak_of_nothing_is_asked():
    def never(context):
        raise AssertionError("asked")

    for draft in (never, None):
        assert generate(never, draft, max_tokens=0, eos=99) == ((), "length", ())


def test_a_lookup_needs_no_draft_model():
    text = (0, 1, 2, 0, 1, 2, 0)
    model = NGram(text, order=2)
    for rule in ("token", "one_hot", "match", "block"):
        done = generate(
            model, None, rule=rule, drafter=prompt_lookup, prompt=text, max_tokens=8, seed=1
        )
        assert done.tokens == (1, 2, 0, 1, 2, 0, 1, 2)
        assert done.rounds == (Count(3, 3, 4), Count(3, 3, 4))


def test_more_drafts_than_fit_are_not_drawn():
    done = generate(TARGET, DRAFT, gamma=10**12, max_tokens=5, seed=1)
    assert done.rounds[0].drafted == 4
    assert done == generate(TARGET, DRAFT, gamma=4, max_tokens=5, seed=1)


def test_a_draft_model_is_asked_for_where_it_is_needed():
    assert generate(TARGET, None, gamma=lambda text: 0, max_tokens=3).reason == "length"
    assert len(generate(TARGET, None, max_tokens=1).tokens) == 1, "nothing can be drafted"
    for asked in ({}, {"drafter": parallel_heads}, {"gamma": lambda text: len(text)}):
        with pytest.raises(ValueError, match="draft = None, but the drafter asks a draft model; p"):
            generate(TARGET, None, max_tokens=3, **asked)


@pytest.mark.parametrize("read", [list, tuple, np.array, lambda row: np.array(row, np.float32)])
def test_models_may_return_any_rows(read):
    rows = {1: [0.5, 0.25, 0.25], 0: [0.125, 0.5, 0.375]}

    def model(context):
        return read(rows[len(context) % 2])

    exact = Table({c: rows[len(c)] for c in [(), (0,), (1,), (2,)]}, order=None)

    def same(context):
        return exact(context[: len(context) % 2])

    for rule in ("token", "match", "transport"):
        got = generate(model, model, rule=rule, gamma=2, max_tokens=8, eos=1, seed=4)
        assert got == generate(same, same, rule=rule, gamma=2, max_tokens=8, eos=1, seed=4)


@needs_torch
def test_models_may_be_networks():
    import torch

    generator = torch.Generator().manual_seed(0)
    table = torch.randn(4, 4, generator=generator)

    def network(context):
        return torch.softmax(table[context[-1] if context else 0], 0)

    def rows(context):
        return network(context).tolist()

    for rule in ("token", "block", "k_seq"):
        done = generate(network, network, rule=rule, max_tokens=10, seed=6)
        assert done == generate(rows, rows, rule=rule, max_tokens=10, seed=6)


def test_floats_count_at_their_exact_value_over_their_exact_sum():
    row = [0.1, 0.2, 0.7]
    total = sum(F(w) for w in row)
    assert total != 1
    exact = [F(w) / total for w in row]
    for seed in range(5):
        drawn = generate(lambda _: row, None, gamma=0, max_tokens=9, seed=seed).tokens
        draws = [uniform(seed, at, 0, Domain.TERMINAL) for at in range(9)]
        assert drawn == tuple(inverse_cdf(exact, u) for u in draws)


def test_a_request_of_sampling_parameters_is_a_model():
    def logits(context):
        return weights([3, 2 + len(context) % 2, 1, 1])

    asked = Parameters(temperature="1/2", top_k=3, repetition_penalty="2")
    target, draft = Process(logits, asked), Process(logits)
    law = target_law(target, Stops(3, eos=3))
    counts = Counter(
        generate(target, draft, gamma=2, max_tokens=3, eos=3, seed=seed).tokens
        for seed in range(400)
    )
    assert not weigh(law, counts, tv=0.05).alarm(tests=1)
    assert set(counts) <= {text for text, mass in law.items() if mass}


def test_a_model_is_asked_once_for_a_context_of_a_round():
    asked = []

    def model(context):
        asked.append(context)
        return TARGET(context)

    generate(model, DRAFT, gamma=3, max_tokens=30, seed=1)
    assert len(asked) == len(set(asked))


BAD_REQUEST = {
    "a rule": ({"rule": "tokens"}, KeyError, "there is no rule 'tokens'; rules are token, "),
    "no target": ({"target": None}, ValueError, "target = None is no model; pass a callable"),
    "no draft": ({"draft": 0.5}, ValueError, r"draft = 0\.5 is no model; pass a callable"),
    "gamma -1": ({"gamma": -1}, ValueError, "gamma = -1 is negative; pass a number of drafts >= 0"),
    "gamma 1.5": ({"gamma": 1.5}, ValueError, r"gamma = 1\.5 is not an integer; pass a number of"),
    "gamma None": ({"gamma": None}, ValueError, "gamma = None is not an integer"),
    "a gamma of text": ({"gamma": "3"}, ValueError, "gamma = '3' is a str; write a list"),
    "no widths": ({"gamma": (1, 0)}, ValueError, r"gamma\[1\] = 0 is below 1; pass a number of dr"),
    "a tree for a chain rule": (
        {"gamma": (2, 1)}, ValueError, r"gamma = \(2, 1\) is a tree, but token verifies chains",
    ),
    "too many siblings": (
        {"gamma": (3,), "rule": "spec_hub"}, ValueError,
        r"gamma = \(3,\), but spec_hub verifies 2 siblings",
    ),
    "a schedule below 0": (
        {"gamma": lambda text: 1 - len(text)}, ValueError, r"gamma\(\(.*\)\) = -\d is negative",
    ),
    "a schedule of nothing": (
        {"gamma": lambda text: None}, ValueError, r"gamma\(\(\)\) = None is not an integer",
    ),
    "max_tokens -1": ({"max_tokens": -1}, ValueError, "max_tokens = -1 is negative; pass a number"),
    "max_tokens None": ({"max_tokens": None}, ValueError, "max_tokens = None is not an integer"),
    "max_tokens 2.5": ({"max_tokens": 2.5}, ValueError, r"max_tokens = 2\.5 is not an integer"),
    "an end outside": (
        {"eos": 3}, ValueError,
        "eos has token 3, but there are 3 tokens; pass tokens in 0 <= token < 3",
    ),
    "a negative end": ({"eos": -1}, ValueError, "eos has token -1; tokens are >= 0"),
    "a stop outside": ({"stop": [(0, 9)]}, ValueError, "stop has token 9, but there are 3 tokens"),
    "a stop of one level": ({"stop": (0, 1)}, ValueError, r"stop\[0\] = 0 is no sequence; write"),
    "too high a minimum": (
        {"min_tokens": 6, "eos": 2}, ValueError,
        "min_tokens = 6 is above max_tokens = 5; pass 0 <= min_tokens <= 5",
    ),
    "a minimum of nothing": ({"min_tokens": 2}, ValueError, "min_tokens = 2 holds back no end"),
    "a minimum that cannot be": (
        {"min_tokens": 2, "eos": (0, 1, 2)}, ValueError,
        r"min_tokens = 2 masks eos = \[0, 1, 2\], and after 0 tokens the target has no other",
    ),
    "a prompt outside": (
        {"prompt": (0, 3)}, ValueError, r"prompt\[1\] = 3 is outside 0 <= token < 3",
    ),
    "a negative prompt": (
        {"prompt": (-1,)}, ValueError, r"prompt\[0\] = -1 is negative; tokens are integers >= 0",
    ),
    "a prompt of text": ({"prompt": "01"}, ValueError, "prompt = '01' is a str; write a list"),
    "seed -1": ({"seed": -1}, ValueError, r"seed = -1 is out of range; pass 0 <= seed < 2\^64"),
    "seed 2^64": ({"seed": 1 << 64}, ValueError, r"seed = 18446744073709551616 is out of range; p"),
    "seed 1.0": ({"seed": 1.0}, ValueError, r"seed = 1\.0 is not an integer; pass 0 <= seed < 2\^"),
    "seed None": ({"seed": None}, ValueError, "seed = None is not an integer"),
    "a drafter": ({"drafter": "lookup"}, ValueError, "drafter = 'lookup' is no drafter; pass one"),
    "logits": (
        {"target": lambda _: [2.0, 1.0, 0.5]}, ValueError,
        r"target\(\) sums to 3\.5, not 1; pass probabilities, not logits",
    ),
    "NaN": (
        {"target": lambda context: [math.nan if context else 0.5, 0.25, 0.25]}, ValueError,
        r"target\(\d\): nan is not a finite number",
    ),
    "a negative mass": (
        {"draft": lambda _: [1.25, -0.25, 0]}, ValueError, r"draft\(\)\[1\] = -1/4 is negative",
    ),
    "a batch": (
        {"target": lambda _: [[0.5, 0.5]]}, ValueError, r"target\(\)\[0\] is a row itself",
    ),
    "no row": ({"target": lambda _: None}, ValueError, r"target\(\) = None is no list"),
    "an empty row": ({"target": lambda _: []}, ValueError, r"target\(\) sums to 0\.0, not 1"),
    "vocabularies that differ": (
        {"draft": lambda _: [0.5, 0.5]}, ValueError,
        "draft has 2 tokens after 0 tokens, but the first law had 3; pad the smaller",
    ),
    "rows that differ": (
        {"target": lambda context: [1] + [0] * (2 + len(context))}, ValueError,
        "target has 4 tokens after 1 tokens, but the first law had 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_REQUEST)
def test_a_request_that_makes_no_sense_is_named_with_the_cure(case):
    changes, error, complaint = BAD_REQUEST[case]
    request = {"target": TARGET, "draft": DRAFT, "gamma": 2, "max_tokens": 5} | changes
    with pytest.raises(error, match=complaint):
        generate(**request)


def test_a_long_context_is_named_by_its_end():
    def model(context):
        return [0.5, 0.5] if len(context) < 15 else [2, 2]

    with pytest.raises(ValueError, match=r"draft\(\.\.\., 1, 1, 0, [01]\) sums to 4\.0"):
        generate(model, model, max_tokens=9, prompt=(0,) * 10 + (0, 1, 1, 0))


@pytest.mark.parametrize(
    ("rule", "drafter", "cure"),
    [
        ("token", likeliest, "with_replacement"),
        ("block", likeliest, "with_replacement"),
        ("rrs_without", with_replacement, "without_replacement"),
        ("rrs_with", without_replacement, "with_replacement"),
        ("spec_hub", with_replacement, "hub_pairs"),
        ("greedy_multi", prompt_lookup, "top_and_one"),
        ("nested_transport", with_replacement, "without_replacement"),
    ],
)
def test_a_drafter_that_a_rule_is_not_made_for_is_refused(rule, drafter, cure):
    with pytest.raises(ValueError, match=f"but {rule} is lossless with {cure}; leave drafter out"):
        generate(TARGET, DRAFT, rule=rule, drafter=drafter, max_tokens=5)


@pytest.mark.parametrize(
    ("rule", "drafter"),
    [
        ("token", without_replacement), ("token", one_from_each), ("match", likeliest),
        ("target_only", with_replacement), ("one_hot", likeliest), ("typical", with_replacement),
        ("token", confident("1/2")), ("rrs_with", parallel_heads),
    ],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)  # fmt: skip
def test_a_drafter_that_fits_is_taken(rule, drafter):
    done = generate(TARGET, DRAFT, rule=rule, drafter=drafter, gamma=2, max_tokens=5, seed=3)
    assert len(done.tokens) == 5
