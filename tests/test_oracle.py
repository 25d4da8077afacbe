"""Expected lengths, the optimum over all lossless verifiers, and non-anticipating drafters."""

import itertools
from dataclasses import replace
from fractions import Fraction as F
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specref import closed
from specref.choice import Proposal, Trace, law
from specref.decode import deviation, round_law
from specref.draft import (
    Node,
    chain,
    likeliest,
    one_from_each,
    with_replacement,
    without_replacement,
)
from specref.drafters import confident, drawn, parallel_heads, scheduled, stochastic_beam
from specref.faults.frame import unroll
from specref.faults.proposals import filtered_draft_raw_q, unlikely_draft_dropped
from specref.lemma import (
    INSTANCES,
    OneByOne,
    certain,
    contract,
    drawn_from_each,
    drawn_with,
    drawn_without,
)
from specref.oracle import hits, lengths, non_anticipating, optimal_length, paths
from specref.rules import RULES
from specref.rules.importance import by_ratio, importance
from specref.transport import independent, optimum
from tests.fixtures import C4, P3, Q3, models, same, tenths

A = same((F(1, 2), F(1, 3), F(1, 6))), same((F(1, 6), F(1, 3), F(1, 2)))
B = same(tenths(5, 3, 2)), same(tenths(2, 2, 6))
TOY2 = same((F(1, 3), F(2, 3))), same((F(2, 3), F(1, 3)))

SLACK = 1e-9  # HiGHS is asked for 1e-10 in every constraint


def accepted(rule, pair, shape, by=None):
    return lengths(rule, *pair, shape=shape, by=by).accepted


@pytest.mark.parametrize(
    ("rule", "pair", "expected"),
    [
        ("token", A, ["2/3", "10/9", "38/27", "130/81"]),
        ("token", B, ["3/5", "24/25", "147/125"]),
        ("token", TOY2, ["2/3", "10/9", "38/27"]),
        ("block", TOY2, ["2/3", "11/9", "5/3"]),
        ("block", B, ["3/5", "26/25", "689/500"]),
        ("match", A, ["5/18"]),
        ("match", B, ["7/25"]),
        ("one_hot", B, ["1/5", "6/25", "31/125"]),
    ],
)
def test_accepted_tokens_on_chains(rule, pair, expected):
    found = [accepted(rule, pair, gamma) for gamma in range(1, len(expected) + 1)]
    assert found == [F(w) for w in expected]


def test_accepted_tokens_on_trees():
    assert accepted("target_only", B, (2, 2)) == F(119, 100)
    for rule, pair, expected in [
        ("rrs_with", A, "403/324"),
        ("rrs_with", B, "836/625"),
        ("traversal_with", A, "209/162"),
        ("traversal_with", B, "866/625"),
        ("rrs_without", A, "112/81"),
        ("rrs_without", B, "171/100"),
        ("traversal", A, "115/81"),
        ("traversal", B, "87/50"),
    ]:
        assert accepted(rule, pair, (2, 2), by=closed.round_law) == F(expected), rule


def test_the_law_of_lengths_is_a_law_and_has_the_stated_mean():
    found = lengths("token", *B, shape=2)
    assert found.law == {1: F(2, 5), 2: F(6, 25), 3: F(9, 25)}
    assert found.expected == F(49, 25)
    assert found.accepted == F(24, 25)


def test_another_source_of_round_laws_may_be_given():
    assert lengths("block", *C4, shape=2, by=closed.round_law) == lengths("block", *C4, shape=2)
    asked = []

    def by(rule, *rest):
        asked.append(rule)
        return round_law(RULES[rule], *rest)

    assert lengths(RULES["token"], *B, shape=1, by=by).expected == F(8, 5)
    assert asked == ["token"]


def test_accepted_tokens_cannot_be_told_where_a_rule_redraws_drafted_positions():
    found = lengths("hierarchical", *TOY2, shape=2)
    assert found.accepted is None
    assert set(found.law) == {2, 3}


@pytest.mark.parametrize(
    ("pair", "explicit", "either"),
    [(A, "137/180", "65/84"), (B, "3591/4675", "13199/16825")],
    ids="AB",
)
def test_hits_are_counted_apart(pair, explicit, either):
    rule = replace(RULES["importance"], verify=partial(importance, select=by_ratio))
    kept = accepted(rule, pair, (2,))
    hit = hits(rule, *pair, shape=(2,))
    assert hit > 0
    assert kept == F(explicit)
    assert kept + hit == F(either)
    assert hits("match", *pair, shape=(2,)) == 0


def test_paths_of_equal_siblings_are_one():
    leaf = Node((), ())
    below = Node((), (), ((1, leaf),))
    assert paths(Node((), (), ((0, leaf), (0, below)))) == {(), (0,), (0, 1)}


@pytest.mark.parametrize(
    ("pair", "draft", "expected"),
    [
        (A, with_replacement, 1.55030),
        (A, without_replacement, 1.79861),
        (B, with_replacement, 1.61446),
        (B, without_replacement, 2.0),
    ],
)
def test_the_optimum_over_trees_of_two_levels(pair, draft, expected):
    assert optimal_length(*pair, (2, 2), draft) - 1 == pytest.approx(expected, abs=1e-5)


def test_the_optimum_of_one_position_is_that_of_optimal_transport():
    for pair, width in itertools.product([A, B, (P3, Q3), C4], [1, 2, 3]):
        p, q = (model(()) for model in pair)
        best = optimum(independent(q, width), p).value
        found = optimal_length(*pair, (width,), with_replacement)
        assert found - 1 == pytest.approx(float(best), rel=SLACK)


def test_nothing_drafted_is_one_token():
    assert optimal_length(*B, 0, with_replacement) == pytest.approx(1, rel=SLACK)


def test_block_is_the_optimum_on_chains(record_property):
    cases = [(pair, gamma) for pair in (TOY2, A, B, (P3, Q3), (Q3, P3)) for gamma in (1, 2, 3)]
    for pair, gamma in cases:
        found = float(lengths("block", *pair, shape=gamma, by=closed.round_law).expected)
        assert found == pytest.approx(optimal_length(*pair, gamma, with_replacement), rel=SLACK)
    record_property("cases", len(cases))


@settings(max_examples=40)
@given(models(3), models(3), st.sampled_from([2, 3]))
def test_block_is_the_optimum_on_generated_chains(p, q, gamma):
    found = float(lengths("block", p, q, shape=gamma, by=closed.round_law).expected)
    assert found == pytest.approx(optimal_length(p, q, gamma, with_replacement), rel=SLACK)


def test_token_is_not_the_optimum_on_chains():
    assert accepted("token", TOY2, 2) + 1 < optimal_length(*TOY2, 2, with_replacement) - 0.1


def shapes_of(rule):
    if rule.shape == "chain":
        return [1, 2, 3]
    shapes = [(2,), (3,), (2, 1), (1, 2)]
    return [shape for shape in shapes if rule.width is None or max(shape) <= rule.width]


# A rule that changes later targets is none of the verifiers over which the optimum is taken.
BOUNDED = [name for name, rule in RULES.items() if rule.lossless and not rule.off_path]


@pytest.mark.parametrize("name", BOUNDED)
def test_no_lossless_rule_is_above_the_optimum(name, record_property):
    rule, shares = RULES[name], []

    @settings(max_examples=8)
    @given(models(3, sharp=rule.one_hot_target), models(3), st.sampled_from(shapes_of(rule)))
    def holds(p, q, shape):
        found = float(lengths(name, p, q, shape=shape).expected)
        best = optimal_length(p, q, shape, rule.draft)
        assert found <= best * (1 + SLACK)
        shares.append(found / best)

    holds()
    record_property("cases", len(shares))
    print(f"{name}: {min(shares):.3f} to {max(shares):.3f} of the optimum")


def test_a_rule_that_changes_later_targets_is_above_it():
    rule, gamma = RULES["hierarchical"], 2

    def accepted_tokens(choose):
        root = rule.draft(*TOY2, gamma, choose, ())
        trace = Trace(choose)
        rule.verify(root, trace)
        # Coins are asked from the deepest node up until one accepts.
        return max((step.at.index for step in trace.steps if step.outcome is True), default=0)

    kept = sum(count * mass for count, mass in law(accepted_tokens).items())
    assert kept == F(4, 3)
    assert kept > optimal_length(*TOY2, gamma, with_replacement) - 1 + SLACK


def test_a_solver_without_an_answer_is_an_error(monkeypatch):
    gave_up = SimpleNamespace(success=False, message="out of time")
    monkeypatch.setattr("scipy.optimize.linprog", lambda *args, **kwargs: gave_up)
    with pytest.raises(RuntimeError, match="out of time"):
        optimal_length(*B, 1, with_replacement)


def test_a_lossy_rule_may_be_above_it():
    assert float(lengths("lenient", *B, shape=1).expected) > optimal_length(*B, 1, with_replacement)


@settings(max_examples=60)
@given(models(3), models(3), st.integers(1, 3))
def test_block_then_token_then_match(p, q, gamma):
    best, middle, least = (
        lengths(rule, p, q, shape=gamma, by=closed.round_law).expected
        for rule in ("block", "token", "match")
    )
    assert best >= middle >= least
    if gamma == 1:
        assert best == middle


@settings(max_examples=25)
@given(models(3), models(3), st.sampled_from([(2,), (2, 1), (1, 2), (2, 2), (3, 2)]))
def test_traversal_is_never_below_recursive_rejection(p, q, shape):
    for whole, stepwise in (("traversal", "rrs_without"), ("traversal_with", "rrs_with")):
        above, below = (
            lengths(rule, p, q, shape=shape, by=closed.round_law).expected
            for rule in (whole, stepwise)
        )
        assert above >= below
        if len(shape) == 1:
            assert above == below


@settings(max_examples=40)
@given(models(3), models(3), st.integers(1, 3))
def test_no_rule_beats_one_hot_on_certain_chains(p, q, gamma):
    found = float(lengths("one_hot", p, q, shape=gamma, by=closed.round_law).expected)
    assert found == pytest.approx(optimal_length(p, q, gamma, likeliest), rel=SLACK)


@settings(max_examples=25)
@given(models(3), models(3), st.sampled_from([(2,), (3,), (2, 2)]))
def test_no_rule_beats_target_only_on_certain_trees(p, q, shape):
    found = float(lengths("target_only", p, q, shape=shape, by=closed.round_law).expected)
    assert found == pytest.approx(optimal_length(p, q, shape, likeliest), rel=SLACK)


CAUSAL = [
    (with_replacement, drawn_with, 3),
    (with_replacement, drawn_with, (2, 2)),
    (without_replacement, drawn_without, (2, 2)),
    (without_replacement, drawn_without, (3, 1)),
    (one_from_each, drawn_from_each, (2, 1)),
    (likeliest, certain, (2, 2)),
    (confident(F(2, 5)), drawn_with, 3),
    (scheduled(lambda context: 2 - len(context)), drawn_with, 3),
    (drawn([(0,), (1,), (0, 0), (0, 1), (1, 0)]), drawn_without, (2, 2)),
    (parallel_heads, drawn_with, 2),
]


@pytest.mark.parametrize(("drafter", "siblings", "shape"), CAUSAL)
def test_a_drafter_that_submits_what_it_draws_is_non_anticipating(drafter, siblings, shape):
    for p, q in [(P3, Q3), (Q3, P3), B]:
        found = non_anticipating(drafter, p, q, shape=shape, siblings=siblings)
        assert found, found.counterexample


def test_nodes_that_are_not_numbered_in_the_order_drawn_are_judged_too_strictly():
    beam = {width: stochastic_beam(width) for width in (1, 2, 3)}
    found = {
        width: non_anticipating(beam[width], P3, Q3, shape=2, siblings=drawn_without)
        for width in beam
    }
    assert found[1]
    assert found[2]
    # A beam of three numbers the children of one node before those of the next, whatever came
    # first; that a node has no second child then tells of tokens with higher numbers.
    assert not found[3]
    assert found[3].counterexample.parents == (0, 0, 0, 1, 2)
    for name, weight in itertools.product(("rrs_without", "traversal"), (1, F(1, 3))):
        assert contract(INSTANCES[name], P3, Q3, shape=2, weight=weight, draft=beam[3]) == 0


def test_a_plan_for_a_tuple_needs_its_length_to_be_independent_of_it():
    def second_unless_zero(p, q, shape, choose, context):
        first = with_replacement(p, q, (1,), choose, context)
        ((x, child),) = first.children
        if x == 0:
            return first
        y = choose(first.q, at=Proposal(2))
        return Node(first.p, first.q, ((x, child), (y, Node(p((y,)), q((y,)), (), 2))))

    assert non_anticipating(second_unless_zero, P3, Q3, shape=(2,), siblings=drawn_with)
    for name in ("rrs_with", "traversal_with", "k_seq", "importance", "transport"):
        found = contract(
            INSTANCES[name], P3, Q3, shape=(2,), weight=F(3, 7), draft=second_unless_zero
        )
        assert (found == 0) == isinstance(INSTANCES[name], OneByOne), name


def test_the_smallest_counterexample_is_returned():
    dspark = same(tenths(7, 3)), same(tenths(5, 5))
    found = non_anticipating(unlikely_draft_dropped, *dspark, shape=3, siblings=drawn_with)
    assert not found
    assert found.counterexample == ((), (0,), (F(1, 2), F(1, 2)), (F(1), F(0)))
    assert contract(
        INSTANCES["token"], *dspark, shape=1, weight=1, draft=unlikely_draft_dropped
    ) == F(3, 20)


@pytest.mark.parametrize(
    ("drafter", "siblings", "shape"),
    [
        (unlikely_draft_dropped, drawn_with, 2),
        (filtered_draft_raw_q, drawn_with, 1),
        (with_replacement, drawn_without, (2,)),
        (without_replacement, drawn_with, (2,)),
        (likeliest, drawn_with, 1),
        (with_replacement, certain, 1),
    ],
)
def test_a_drafter_that_does_not_draw_as_declared_is_found_out(drafter, siblings, shape):
    found = non_anticipating(drafter, *C4, shape=shape, siblings=siblings)
    assert not found
    assert found.counterexample.declared != found.counterexample.actual
    assert sum(found.counterexample.actual) == 1


def stopping(texts, withhold):
    """Return the drafter of chains that stop behind any of `texts`, or withhold its last token."""

    def drafter(p, q, shape, choose, context):
        nodes, drafts = unroll(with_replacement(p, q, shape, choose, context))
        for length in range(1, len(drafts) + 1):
            if tuple(drafts[:length]) in texts:
                kept = length - withhold
                nodes, drafts = nodes[: kept + 1], drafts[:kept]
                break
        return chain([node.p for node in nodes], [node.q for node in nodes], drafts)

    return drafter


TEXTS = [text for n in (1, 2) for text in itertools.product(range(3), repeat=n)]


@settings(max_examples=60)
@given(models(3), models(3), st.sets(st.sampled_from(TEXTS)))
def test_stopping_behind_any_token_is_safe_and_withholding_it_is_not(p, q, texts):
    behind = non_anticipating(stopping(texts, 0), p, q, shape=2, siblings=drawn_with)
    assert behind
    for rule in ("token", "block"):
        rule = replace(RULES[rule], draft=stopping(texts, 0))
        assert deviation(rule, p, q, shape=2, length=3) == 0
    withheld = stopping(texts, 1)
    if non_anticipating(withheld, p, q, shape=2, siblings=drawn_with):
        assert deviation(replace(RULES["token"], draft=withheld), p, q, shape=2, length=3) == 0


def test_a_drafter_may_look_ahead_under_a_rule_that_reads_drafts_as_certain():
    for name in ("one_hot", "match"):
        rule = replace(RULES[name], draft=unlikely_draft_dropped)
        assert deviation(rule, P3, Q3, shape=3, length=4) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: lengths("token", TOY2[0], q, shape=1),
        lambda q: hits("token", TOY2[0], q, shape=1),
        lambda q: optimal_length(TOY2[0], q, 1, RULES["token"].draft),
    ],
)
def test_models_are_checked_at_the_door(ask):
    for bad, words in (
        (None, "q = None is no model"),
        (lambda context: (F(1, 2), F(1, 4)), r"q\(\(\)\) sums to 3/4, not 1"),
        (lambda context: (1, 0, 0), "p has 2 tokens and q 3; pad the smaller"),
    ):
        with pytest.raises(ValueError, match=words):
            ask(bad)


def test_a_shape_that_a_rule_is_not_for_is_refused():
    for ask in (lengths, hits):
        with pytest.raises(
            ValueError, match=r"shape = \(2,\) is a tree, but token verifies chains"
        ):
            ask("token", *TOY2, shape=(2,))


def test_lengths_of_laws_in_integers_are_exact():
    def sure(context):
        return (1, 0)

    assert lengths("token", sure, TOY2[1], shape=2).law == {1: F(1, 3), 2: F(2, 9), 3: F(4, 9)}
