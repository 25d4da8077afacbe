"""Rules for several drafts at one position: the numbers of the papers, and the best possible."""

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction as F
from functools import partial

import pytest

from specref.choice import Enumerate, Uniforms, law
from specref.decode import deviation, round_law
from specref.dist import is_exact, normalise
from specref.draft import DRAFTS, flat, tree, with_replacement, without_replacement
from specref.rules import RULES
from specref.rules.importance import by_ratio, importance, larger_ratio, selected
from specref.rules.k_seq import PARTS, k_seq, smallest_rho
from specref.rules.nested_transport import nested_transport
from specref.rules.transport import transport
from specref.transport import distinct, independent, optimum
from tests.fixtures import GRID, P3, P4, Q3, Q4, TOY2, A, B, after, expected_accepted, same
from tests.test_transport import pairs_of_laws

LOOKUP = replace(RULES["target_only"], draft=with_replacement)
WITHOUT = replace(
    RULES["transport"],
    verify=partial(transport, siblings=distinct),
    draft=without_replacement,
)
BY_RATIO = replace(RULES["importance"], verify=partial(importance, select=by_ratio))
VARIANTS = {"transport without replacement": WITHOUT, "importance by ratio": BY_RATIO}


def proposed(rule, q, k):
    """Return the law of the siblings that the drafter of a rule proposes at one position."""

    def program(choose):
        return flat(rule.draft(same(q), same(q), (k,), choose, ()))[0]

    return law(program)


def hit(rule, p, q, k):
    """Return the chance that the first emitted token is among the siblings, accepted or not."""

    def program(choose):
        root = rule.draft(same(p), same(q), (k,), choose, ())
        return rule.verify(root, choose)[0] in {x for x, _ in root.children}

    return law(program).get(True, 0)


TABLE = [
    (RULES["transport"], A, 2, "29/36"), (RULES["transport"], A, 3, "199/216"),
    (RULES["transport"], B, 2, "21/25"), (RULES["transport"], B, 3, "123/125"),
    (RULES["rrs_with"], A, 2, "13/18"), (RULES["rrs_with"], A, 3, "83/108"),
    (RULES["rrs_with"], B, 2, "19/25"), (RULES["rrs_with"], B, 3, "207/250"),
    (RULES["k_seq"], A, 2, "3/4"),
    (BY_RATIO, A, 2, "137/180"), (BY_RATIO, B, 2, "3591/4675"),
    (RULES["importance"], A, 2, "29/36"), (RULES["importance"], B, 2, "21/25"),
    (LOOKUP, B, 2, "57/125"),
    (WITHOUT, A, 2, "11/12"), (WITHOUT, A, 3, "1"), (WITHOUT, B, 2, "1"), (WITHOUT, B, 3, "1"),
    (RULES["rrs_without"], A, 2, "7/9"), (RULES["rrs_without"], A, 3, "1"),
    (RULES["rrs_without"], B, 2, "9/10"), (RULES["rrs_without"], B, 3, "1"),
    (RULES["greedy_multi"], A, 2, "5/6"), (RULES["greedy_multi"], A, 3, "1"),
    (RULES["greedy_multi"], B, 2, "1"), (RULES["greedy_multi"], B, 3, "1"),
    (RULES["spec_hub"], A, 2, "5/6"), (RULES["spec_hub"], B, 2, "1"),
    (RULES["target_only"], A, 2, "1/2"), (RULES["target_only"], A, 3, "1"),
    (RULES["target_only"], B, 2, "7/10"), (RULES["target_only"], B, 3, "1"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "pair", "k", "accepted"), TABLE)
def test_acceptance_at_one_position_is_the_known_one(rule, pair, k, accepted):
    assert expected_accepted(rule, *pair, (k,)) == F(accepted)


@pytest.mark.parametrize(
    ("rule", "pair", "accepted"),
    [
        # two levels of two, an optimal plan at every node
        (RULES["transport"], A, "1885/1296"), (RULES["transport"], B, "966/625"),
        (WITHOUT, A, "253/144"), (WITHOUT, B, "2"),
    ],
)  # fmt: skip
def test_acceptance_on_trees_is_the_known_one(rule, pair, accepted):
    assert expected_accepted(rule, *pair, (2, 2)) == F(accepted)


def coin(heads):
    return (1 - heads, heads)


@pytest.mark.parametrize(
    ("tenths", "best", "recursive", "sequential"),
    [
        (1, "47/50", "173/200", ".88405"), (3, "1", "197/200", ".99573"), (5, "1", "7/8", ".90451"),
        (7, "19/25", "137/200", ".71122"), (9, "11/25", "83/200", ".42578"),
    ],
)  # fmt: skip
def test_two_siblings_in_the_bernoulli_setting(tenths, best, recursive, sequential):
    pair = coin(F(1, 4)), coin(F(tenths, 10))
    assert expected_accepted("transport", *pair, (2,)) == F(best)
    assert expected_accepted("rrs_with", *pair, (2,)) == F(recursive)
    assert abs(expected_accepted("k_seq", *pair, (2,)) - F(sequential)) < F(6, 10**6)
    assert expected_accepted("rrs_without", *pair, (2,)) == 1


def k_seq_formula(p, q, k, rho):
    """Return (acceptance, residual masses) of K-SEQ, whether or not rho is valid."""
    each = [min(b, a / rho) for a, b in zip(p, q, strict=True)]
    beta = sum(each)
    alpha = 1 - (1 - beta) ** k
    return alpha, [a - w * alpha / beta for a, w in zip(p, each, strict=True)]


@pytest.mark.parametrize(
    ("pair", "k", "accepted"), [(A, 3, ".81555"), (B, 2, ".78533"), (B, 3, ".85852")]
)
def test_k_seq_comes_as_close_as_a_fraction_can_to_an_irrational_root(pair, k, accepted):
    rho = smallest_rho(*pair, k)
    below = k_seq_formula(*pair, k, rho - F(1, PARTS))
    assert min(below[1]) < 0, "the next smaller multiple is not valid"
    alpha, missing = k_seq_formula(*pair, k, rho)
    assert min(missing) >= 0
    assert expected_accepted("k_seq", *pair, (k,)) == alpha
    # A smaller divisor accepts more: the irrational optimum is between the two.
    assert alpha < below[0] < alpha + F(1, 10**6)
    assert F(accepted) - F(6, 10**6) < alpha
    assert below[0] < F(accepted) + F(6, 10**6)


def test_the_smallest_divisor_is_exact_where_it_is_a_simple_fraction():
    assert smallest_rho(*A, 2) == F(3, 2)
    assert k_seq_formula(*A, 2, F(3, 2)) == (F(3, 4), [F(1, 4), 0, 0])
    rho = smallest_rho(*B, 2)  # (4 + sqrt 11) / 5 is irrational
    assert (5 * rho - 4) ** 2 > 11 > (5 * (rho - F(1, PARTS)) - 4) ** 2


def test_a_divisor_that_is_too_small_leaves_negative_masses():
    assert k_seq_formula(*A, 2, 1)[1] == [F(5, 18), F(-1, 9), F(-1, 18)]


@pytest.mark.parametrize(
    "rho", [0, -1, F(1, 10), 1, F(3, 2) - F(1, PARTS), math.nan, math.inf, "149/100"]
)
def test_a_divisor_that_is_not_valid_is_refused_on_every_draft(rho):
    p, q = A
    for tokens in itertools.product(range(3), repeat=2):
        root = tree([p] * 3, [q] * 3, tokens, [0, 0])
        with pytest.raises(ValueError, match=r"rho = .* for 2 siblings here: .* at least 3/2; "):
            k_seq(root, Uniforms([0, 0, 0]), rho=rho)
    root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    assert k_seq(root, Uniforms([0, 0, 0]), rho="3/2") == (2, 0)


def test_every_larger_divisor_is_lossless_and_accepts_less():
    accepted = []
    for rho in (F(3, 2), F(7, 4), 2, 3):
        rule = replace(RULES["k_seq"], verify=partial(k_seq, rho=rho))
        assert deviation(rule, same(A[0]), same(A[1]), shape=(2,), length=2) == 0
        accepted.append(expected_accepted(rule, *A, (2,)))
    assert accepted[2] == F(95, 144)
    assert accepted == sorted(accepted, reverse=True)


def test_k_seq_with_one_sibling_is_the_token_rule():
    for p, q in itertools.product(GRID, GRID):
        assert round_law(RULES["k_seq"], same(p), same(q), 1) == round_law(
            RULES["token"], same(p), same(q), 1
        )


def test_k_seq_on_floats_follows_the_law_of_the_fractions():
    """Rounding may move the divisor by one step of 1/720720, and everything else by little."""
    for p, q in itertools.product(GRID, GRID):
        exact = round_law(RULES["k_seq"], same(p), same(q), (2,))
        floats = round_law(
            RULES["k_seq"], same(tuple(map(float, p))), same(tuple(map(float, q))), (2,)
        )
        for text in exact.keys() | floats.keys():
            assert abs(floats.get(text, 0) - exact.get(text, 0)) < 2 / PARTS


def test_masses_of_importance_sampling():
    assert selected(*A, 2, larger_ratio) == (F(11, 36), F(4, 9), F(1, 4))
    assert hit(BY_RATIO, *A, 2) == F(65, 84)
    assert hit(BY_RATIO, *B, 2) == F(13199, 16825)


def test_the_selection_is_tested_with_the_law_of_the_selected_and_not_with_q():
    def wrong(root, choose):
        p, q = root.p, root.q
        row = by_ratio(p, q, tuple(x for x, _ in root.children))
        x = choose([row.get(y, 0) for y in range(len(p))])
        if choose.flip(min(1, p[x] / q[x])):
            return (x, choose(p))
        single = selected(p, q, 2, by_ratio)
        return (choose(normalise(max(a - b, 0) for a, b in zip(p, single, strict=True))),)

    rule = replace(RULES["importance"], verify=wrong)
    assert deviation(rule, same(B[0]), same(B[1]), shape=(2,), length=1) == F(262, 4675)


def test_selecting_the_larger_ratio_is_not_always_best():
    worse = 0
    for p, q in pairs_of_laws(3, 40, 4):
        best = optimum(independent(q, 2), p).value
        accepted = sum(min(a, b) for a, b in zip(p, selected(p, q, 2, larger_ratio), strict=True))
        assert accepted <= best
        worse += accepted < best
    assert worse > 0


@pytest.mark.parametrize("rule", VARIANTS.values(), ids=VARIANTS)
def test_the_other_variants_are_lossless_too(rule, record_property):
    for p, q in itertools.product(GRID, GRID):
        assert deviation(rule, same(p), same(q), shape=(2,), length=2) == 0, (p, q)
    for p, q in ((P3, Q3), (Q3, P3)):
        assert deviation(rule, p, q, shape=(2, 1), length=3) == 0
    assert deviation(rule, P4, Q4, shape=(3,), length=2) == 0
    record_property("cases", len(GRID) ** 2 + 3)


def test_counterexamples_of_sequoia():
    """Chen et al. 2024, appendix F.3."""
    pair = (F(1), F(0)), (F(1, 2), F(1, 2))
    assert expected_accepted("rrs_with", *pair, (2,)) == F(3, 4)
    assert expected_accepted("k_seq", *pair, (2,)) == F(3, 4)
    assert expected_accepted("rrs_without", *pair, (2,)) == 1
    assert expected_accepted("target_only", *(normalise([3, 2]),) * 2, (1,)) == F(3, 5)


def test_looking_up_one_draw_of_the_target_is_never_better_than_recursive_rejection():
    """Miao et al. 2024 (SpecInfer), theorem 4.3; and the same for distinct siblings."""
    distinct_lookup = replace(RULES["target_only"], draft=without_replacement)
    for (p, q), k in itertools.product(pairs_of_laws(43, 30, 4), (2, 3)):
        for rule, lookup in (("rrs_with", LOOKUP), ("rrs_without", distinct_lookup)):
            there = expected_accepted(lookup, p, q, (k,))
            assert there <= expected_accepted(rule, p, q, (k,)), (p, q)


def test_pairs_with_the_hub_do_what_greedy_pairs_do():
    for p, q in itertools.product(GRID, GRID):
        hub, greedy = (
            round_law(RULES[name], same(p), same(q), (2,)) for name in ("spec_hub", "greedy_multi")
        )
        assert hub == greedy
    assert round_law(RULES["spec_hub"], P4, Q4, (2, 2)) == round_law(
        RULES["greedy_multi"], P4, Q4, (2, 2)
    )


SURVEYED = [
    *(
        RULES[name]
        for name in (
            "rrs_with", "k_seq", "importance", "transport", "rrs_without", "greedy_multi",
            "spec_hub", "target_only",
        )
    ),
    LOOKUP, *VARIANTS.values(),
]  # fmt: skip


@pytest.fixture(scope="module")
def survey():
    """Return, per instance, (k, {rule: (acceptance, optimum for its drafts, TV)})."""
    rows = []
    draw = random.Random(24)
    for at in range(30):
        vocab, k = draw.choice([(3, 2), (4, 2), (3, 3)])
        ((p, q),) = pairs_of_laws(100 + at, 1, vocab)
        rows.append((k, {}))
        for rule in SURVEYED:
            if rule.width in (None, k):
                rows[-1][1][id(rule)] = (
                    expected_accepted(rule, p, q, (k,)),
                    optimum(proposed(rule, q, k), p).value,
                    deviation(rule, same(p), same(q), shape=(k,), length=1),
                )
    return rows


def column(survey, rule, at):
    return [found[id(rule)][at] for _, found in survey if id(rule) in found]


def test_no_rule_accepts_more_than_the_optimum_of_its_drafts(survey, record_property):
    for rule in SURVEYED:
        accepted, best, loss = (column(survey, rule, at) for at in range(3))
        assert all(a <= b for a, b in zip(accepted, best, strict=True))
        assert not any(loss)
    record_property("cases", len(survey))


def test_some_rules_attain_the_optimum_of_their_drafts_and_others_do_not(survey):
    for name in ("transport", "greedy_multi", "spec_hub", "target_only"):
        assert column(survey, RULES[name], 0) == column(survey, RULES[name], 1)
    assert column(survey, WITHOUT, 0) == column(survey, WITHOUT, 1)
    for name in ("rrs_with", "k_seq", "importance", "rrs_without"):
        assert column(survey, RULES[name], 0) != column(survey, RULES[name], 1)


def test_k_seq_keeps_its_guarantee(survey):
    """SpecTr: at the root it accepts at least 1 - (1 - 1/K)^K of the optimum.

    A divisor that is larger by a factor accepts at most that factor less.
    """
    assert [1 - (1 - F(1, k)) ** k for k in (1, 2, 3, 4)] == [1, F(3, 4), F(19, 27), F(175, 256)]
    for k, found in survey:
        accepted, best, _ = found[id(RULES["k_seq"])]
        assert accepted >= (1 - (1 - F(1, k)) ** k) * best * (1 - F(1, PARTS))


def test_the_order_of_the_rules_by_mean_acceptance(survey):
    def mean(rule):
        values = column(survey, rule, 0)
        return sum(values) / len(values)

    ranked = [LOOKUP, *(RULES[name] for name in ("rrs_with", "k_seq", "transport", "rrs_without"))]
    means = [mean(rule) for rule in [*ranked, RULES["greedy_multi"]]]
    assert means == sorted(means)
    assert mean(RULES["rrs_without"]) < mean(WITHOUT)


def test_the_best_rule_for_independent_siblings_beats_every_other_one():
    for p, q in itertools.product(GRID, GRID):
        best = expected_accepted("transport", p, q, (2,))
        for rule in ("rrs_with", "k_seq", "importance"):
            assert expected_accepted(rule, p, q, (2,)) <= best


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_top_and_one_makes_fewer_siblings_where_q_has_fewer_tokens(k):
    q = normalise([1, 0, 3])
    assert proposed(RULES["greedy_multi"], q, k) == (
        {(0,): F(1, 4), (2,): F(3, 4)} if k == 1 else {(2, 0): 1}
    )
    assert proposed(RULES["greedy_multi"], normalise([1, 2, 4, 5]), 3) == {
        (3, 2, 0): F(1, 3),
        (3, 2, 1): F(2, 3),
    }


def test_hub_pairs_have_the_law_of_the_paper():
    q = normalise([1, 2, 5])
    assert proposed(RULES["spec_hub"], q, 2) == {
        (0, 2): F(1, 8), (1, 2): F(2, 8), (2, 0): F(5, 8) * F(1, 3), (2, 1): F(5, 8) * F(2, 3),
    }  # fmt: skip
    assert proposed(RULES["spec_hub"], normalise([0, 1, 0]), 2) == {(1,): 1}
    assert proposed(RULES["spec_hub"], q, 1) == {(x,): w for x, w in enumerate(q)}
    with pytest.raises(ValueError, match="hub_pairs draws pairs, not 3 siblings; pass widths 1"):
        proposed(RULES["spec_hub"], q, 3)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("spec_hub", (0, 1)), ("spec_hub", (2, 2)), ("spec_hub", (2, 3)), ("spec_hub", (2, 0, 1)),
        ("greedy_multi", (0, 2)), ("greedy_multi", (2, 2)), ("greedy_multi", (2, 3)),
        ("greedy_multi", (1, 2, 0)),
    ],
)  # fmt: skip
def test_siblings_that_their_drafter_cannot_make_are_refused(name, tokens):
    p, q = normalise([1, 1, 1, 1]), normalise([1, 2, 4, 0])
    root = tree([p] * (len(tokens) + 1), [q] * (len(tokens) + 1), tokens, [0] * len(tokens))
    with pytest.raises(ValueError, match=f"{name} got the siblings .*({'|'.join(DRAFTS)})"):
        after(RULES[name], root)


@pytest.mark.parametrize("rule", [transport, nested_transport])
def test_floats_are_read_exactly_and_never_answer_for_fractions(rule):
    """0.5 and 1/2 are one key: what was computed for floats must not come back for fractions."""
    p, q = (0.5, 0.3, 0.2), (0.25, 0.25, 0.5)
    for row, other in ((p, q), (tuple(map(F, p)), tuple(map(F, q)))):
        root = tree([row] * 3, [other] * 3, [2, 1], [0, 0])
        out = law(lambda choose, root=root: rule(root, choose)[:1])
        assert all(is_exact(mass) for mass in out.values())
        assert sum(out.values()) == 1


@pytest.mark.parametrize("rule", [transport, partial(nested_transport, siblings=independent)])
def test_siblings_without_mass_and_masses_that_are_no_law_are_refused(rule):
    p, q = normalise([1, 1, 1, 1]), normalise([1, 2, 4, 0])
    with pytest.raises(
        ValueError, match=r"transport got the siblings \[2, 3\], .* never drawn .* pass siblings="
    ):
        rule(tree([p] * 3, [q] * 3, [2, 3], [0, 0]), Enumerate())
    root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    for total in (F(1, 2), 2):
        with pytest.raises(ValueError, match=f"siblings= returned masses that sum to {total}, not"):
            rule(root, Enumerate(), siblings=lambda q, k, total=total: {(2, 1): total})


@pytest.mark.parametrize("row", [{}, {0: 2}, {0: F(1, 2)}, {0: 2, 1: -1}, {3: 1}], ids=str)
def test_a_selection_that_is_no_law_over_the_siblings_is_refused(row):
    p, q = A
    root = tree([p] * 3, [q] * 3, [0, 1], [0, 0])
    with pytest.raises(ValueError, match=r"select= gave .* return a law over them"):
        importance(root, Enumerate(), select=lambda p, q, siblings: row)


@pytest.mark.parametrize("name", ["k_seq", "importance", "transport"])
def test_of_equal_siblings_the_first_is_followed(name):
    p = normalise([1, 3])
    one, two = normalise([1, 0]), normalise([0, 1])
    root = tree([p, one, two], [normalise([1, 1])] * 3, [1, 1], [0, 0])
    assert {text for text in after(RULES[name], root) if len(text) == 2} == {(1, 0)}


def test_transport_reads_floats_exactly():
    p, q = (0.1, 0.2, 0.7), (0.3, 0.3, 0.4)
    root = tree([p] * 3, [q] * 3, [0, 1], [0, 0])
    exact = tree([normalise(map(F, p))] * 3, [normalise(map(F, q))] * 3, [0, 1], [0, 0])
    assert after(RULES["transport"], root) == after(RULES["transport"], exact)


def test_toy2_with_two_siblings():
    assert expected_accepted("transport", *TOY2, (2,)) == F(8, 9)
    assert optimum(independent(TOY2[1], 2), TOY2[0]) == (F(8, 9), {0})
