"""The lossy rules: each has a law of its own, and a distance from the target, pinned exactly."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F
from functools import partial

import pytest

from specref.choice import Seeded, Trace, law
from specref.closed import lossy
from specref.decode import deviation, round_law
from specref.dist import as_fraction, as_law, normalise, rational, tv
from specref.draft import chain, likeliest, tree, with_replacement
from specref.faults.proposals import unlikely_draft_dropped
from specref.rules import RULES
from specref.rules.typical import exceeds
from tests.fixtures import C4, I4

A = normalise([F(3), F(2), F(1)]), normalise([F(1), F(2), F(3)])
B = normalise([F(5), F(3), F(2)]), normalise([F(1), F(1), F(3)])
LOSSY = ["typical", "lenient", "lenient_scaled", "threshold", "ensemble"]
LENIENT = ["lenient", "lenient_scaled"]
GRID = [
    as_law([F(count, 4) for count in counts])
    for counts in itertools.product(range(5), repeat=3)
    if sum(counts) == 4
]
PAIRS = list(itertools.product(GRID, GRID))
LENIENCES = (1, F(3, 4), F(1, 2), F(1, 10))
SOME = {
    "typical": [
        {},
        {"epsilon": F(1, 4), "delta": 1},
        {"epsilon": 1, "delta": F(1, 2)},
        {"epsilon": F(1, 3), "delta": 9},
        {"epsilon": 1, "delta": 1, "inside": F(1, 100000)},
    ],
    "lenient": [{"lenience": lenience} for lenience in LENIENCES],
    "lenient_scaled": [{"lenience": lenience} for lenience in LENIENCES],
    "threshold": [{"single": s, "acc": a} for s in (1, F(1, 2), F(1, 4)) for a in (1, F(2, 3))],
    "ensemble": [{"w": w} for w in (0, F(1, 3), 1)],
}
"""Parameters that are tried, of each rule."""


def same(row):
    """Return the model that gives one law after every context."""
    return lambda context: row


def variant(name, **parameters):
    """Return a registered rule at other parameters."""
    rule = RULES[name]
    return replace(rule, verify=partial(rule.verify, **parameters))


def first(out):
    """Return the law of the first token, V = 3, from a law of texts."""
    return tuple(sum(mass for text, mass in out.items() if text[0] == x) for x in range(3))


def first_token(rule, p, q, shape=1):
    """Return the law of the first emitted token, for laws that ignore the context."""
    return first(round_law(rule, same(p), same(q), shape))


def after(verify, root):
    """Return the exact law of the emitted tokens, given the draft."""
    return law(lambda choose: verify(root, choose))


DISTANCES = [
    # rule, shape, then TV of the first token and of the round continued by the target: A, B
    ("typical", (1,), "5/6", "11/12", "4/5", "9/10"),
    ("typical", (2,), "2/3", "5/6", "1/2", "3/4"),
    ("typical", (2, 2), "2/3", "17/18", "1/2", "7/8"),
    ("lenient", 1, "1/6", "1/6", "1/5", "1/5"),
    ("lenient", 2, "1/6", "2/9", "1/5", "6/25"),
    ("lenient_scaled", 1, "3/14", "3/14", "1/5", "1/5"),
    ("lenient_scaled", 2, "3/14", "11/42", "1/5", "6/25"),
    ("threshold", (1,), "1/24", "1/24", "1/20", "1/20"),
    ("threshold", (2,), "1/8", "1/8", "7/40", "7/40"),
    ("threshold", (2, 2), "1/8", "9/64", "7/40", "441/1600"),
    ("ensemble", 1, "1/6", "1/6", "1/5", "1/5"),
    ("ensemble", 2, "1/6", "2/9", "1/5", "6/25"),
]


@pytest.mark.parametrize(("name", "shape", *"abcd"), DISTANCES, ids=str)
def test_the_distance_from_the_target_is_the_known_one(name, shape, a, b, c, d, record_property):
    deep = 1 + (shape if isinstance(shape, int) else len(shape))
    found = [
        deviation(name, same(p), same(q), shape=shape, length=length)
        for p, q in (A, B)
        for length in (1, deep)
    ]
    record_property("TV on A", float(found[0]))
    record_property("TV on B", float(found[2]))
    print(f"{name}, shape {shape}: TV on A {found[0]}, joint {found[1]}; on B {found[2]}, "
          f"joint {found[3]}")  # fmt: skip
    assert found == [F(a), F(b), F(c), F(d)]


def test_the_distances_on_laws_that_depend_on_the_context_are_known():
    found = {}
    for name in LOSSY:
        shape = 2 if RULES[name].shape == "chain" else (2, 2)
        out = round_law(RULES[name], *C4, shape)
        accepted = sum((len(text) - 1) * mass for text, mass in out.items())
        found[name] = (str(deviation(name, *C4, shape=shape, length=3)), str(accepted))
        print(f"{name}, shape {shape}: TV on C4 {found[name][0]}, accepted {found[name][1]}")
    assert found == {
        "typical": ("123/125", "2"),
        "lenient": ("137/500", "13/10"),
        "lenient_scaled": ("37/130", "13/10"),
        "threshold": ("3/40", "17/32"),
        "ensemble": ("57/200", "133/100"),
    }


@pytest.mark.parametrize("name", LOSSY)
def test_the_closed_law_is_the_law_of_the_program(name, record_property):
    rule, cases = RULES[name], 0
    for parameters in SOME[name]:
        closed, changed = partial(getattr(lossy, name), **parameters), variant(name, **parameters)
        for p, q in PAIRS:
            shape = 1 if rule.shape == "chain" else (2,)
            expected = closed(same(p), same(q), shape, ())
            assert round_law(changed, same(p), same(q), shape) == expected, (parameters, p, q)
            assert sum(expected.values()) == 1
            cases += 1
        for p, q in (C4, I4):
            for shape in (0, 1, 2, 3) if rule.shape == "chain" else ((), (1,), (3, 2), (2, 1, 2)):
                for context in ((), (3, 1)):
                    expected = closed(p, q, shape, context)
                    assert round_law(changed, p, q, shape, context) == expected, (parameters, shape)
                    cases += 1
    record_property("cases", cases)


# Switched off, a rule is the lossless one, step by step on the same draws (the off-switch).

OFF = {
    "lenient": ({"lenience": 1}, "token"),
    "lenient_scaled": ({"lenience": 1}, "token"),
    "ensemble": ({"w": 1}, "token"),
    "threshold": ({"single": 1, "acc": 1}, "target_only"),
}


@pytest.mark.parametrize("name", OFF)
def test_switched_off_it_takes_the_same_steps_as_the_lossless_rule(name):
    parameters, twin = OFF[name]
    changed = variant(name, **parameters)
    shape = 3 if changed.shape == "chain" else (2, 2)

    def run(rule, seed):
        trace = Trace(Seeded(seed))
        root = rule.draft(*C4, shape, trace, ())
        emitted = rule.verify(root, trace)
        steps = [(step.kind, step.weights, step.outcome, step.u) for step in trace.steps]
        return emitted, steps

    for seed in range(200):
        assert run(changed, seed) == run(RULES[twin], seed)
    assert deviation(changed, *C4, shape=shape, length=3) == 0


def test_thresholds_of_one_are_target_only_on_every_draft():
    off = partial(RULES["threshold"].verify, single=1, acc=1)
    for p in GRID:
        for count in range(4):
            for tokens in itertools.product(range(3), repeat=count):  # repeated siblings too
                root = tree([p] * (count + 1), [None] * (count + 1), tokens, [0] * count)
                assert after(off, root) == after(RULES["target_only"].verify, root)


def test_thresholds_of_one_survive_floats_that_cover_the_vocabulary():
    off = partial(RULES["threshold"].verify, single=1, acc=1)
    for counts in itertools.product(range(1, 9), repeat=3):
        if sum(counts) == 10:
            p = tuple(count / 10 for count in counts)
            out = after(off, tree([p] * 4, [None] * 4, [2, 0, 1], [0] * 3))
            assert first(out) == pytest.approx(p, abs=1e-15)


# Lenience.


def test_lenience_on_the_known_pairs():
    assert first_token(RULES["lenient"], *A) == (F(1, 3), F(1, 3), F(1, 3))
    assert first_token(RULES["lenient_scaled"], *A) == (F(2, 7), F(8, 21), F(1, 3))
    assert tv(A[0], first_token(RULES["lenient"], *A)) == F(1, 6)
    assert tv(A[0], first_token(RULES["lenient_scaled"], *A)) == F(3, 14)
    assert first_token(RULES["lenient"], *B) == (F(7, 20), F(1, 4), F(2, 5))
    assert first_token(RULES["lenient_scaled"], *B) == (F(1, 3), F(4, 15), F(2, 5))


@pytest.mark.parametrize("lenience", [1, F(3, 4), F(1, 2), F(1, 3), F(1, 100)])
def test_lenience_keeps_its_promises_on_every_pair_of_a_grid(lenience, record_property):
    for p, q in PAIRS:
        kept = sum(min(a / lenience, b) for a, b in zip(p, q, strict=True))
        laws = {}
        for name in LENIENT:
            out = round_law(variant(name, lenience=lenience), same(p), same(q), 1)
            assert sum(mass for text, mass in out.items() if len(text) == 2) == kept
            laws[name] = first(out)
            assert all(mass <= a / lenience for mass, a in zip(laws[name], p, strict=True))
        assert tv(p, laws["lenient"]) == tv(p, q) - (1 - kept)
        assert tv(p, laws["lenient"]) <= tv(p, laws["lenient_scaled"])
    record_property("cases", len(PAIRS))


@pytest.mark.parametrize("name", LENIENT)
def test_lenience_bounds_whole_texts(name):
    for text, mass in round_law(RULES[name], *C4, 2).items():
        allowed = math.prod(2 * C4[0](text[:at])[x] for at, x in enumerate(text))
        assert mass <= allowed


def test_lenience_without_end_emits_the_draft():
    p, q = as_law(["1/2", "1/4", "1/4"]), as_law(["1/8", "1/8", "3/4"])
    assert first_token(variant("lenient", lenience=F(1, 100)), p, q) == q


def test_lenience_at_temperature_zero_keeps_what_is_near_the_maximum():
    zero = partial(RULES["lenient"].verify, choose=None, greedy=True)
    p = as_law(["1/2", "1/4", "3/20", "1/10"])
    for lenience, kept in [(1, 1), (F(1, 2), 2), (F(3, 10), 3), (F(29, 100), 3), (F(1, 5), 4)]:
        for x in range(4):
            emitted = zero(chain([p, p[::-1]], [None] * 2, [x]), lenience=lenience)
            assert emitted == ((x, 3) if x < kept else (0,))


def test_lenience_at_temperature_zero_is_greedy_on_sharp_targets():
    sharp = [as_law([int(x == y) for x in range(3)]) for y in range(3)]
    for rows in itertools.product(sharp, repeat=3):
        for tokens in itertools.product(range(3), repeat=2):
            root = chain(rows, [None] * 3, tokens)
            expected = RULES["greedy"].verify(root, None)
            for lenience in (1, F(1, 2), F(1, 100)):
                assert RULES["lenient"].verify(root, None, lenience, greedy=True) == expected


# Thresholds.


def test_thresholds_on_the_known_candidates():
    p, q = B
    root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    verify = RULES["threshold"].verify
    by_acc = first(after(partial(verify, single=1, acc=F(1, 2)), root))
    by_single = first(after(partial(verify, single=F(3, 10), acc=1), root))
    assert by_acc == (0, F(3, 5), F(2, 5))
    assert by_single == (0, F(4, 5), F(1, 5))
    assert tv(p, by_acc) == tv(p, by_single) == F(1, 2)
    print(
        f"B, candidates 2, 1: acc = 1/2 gives TV {tv(p, by_acc)}, single = 3/10 {tv(p, by_single)}"
    )


def test_an_outright_accepted_sibling_takes_only_what_those_before_it_left():
    verify = partial(RULES["threshold"].verify, single=F(1, 2), acc=1)
    for order, expected in [((0, 1), (1, 0, 0)), ((1, 0), (F(7, 10), F(3, 10), 0))]:
        root = tree([B[0]] * 3, [None] * 3, order, [0, 0])
        assert first(after(verify, root)) == expected


def test_thresholds_never_emit_what_the_target_excludes():
    p = as_law(["0", "1/2", "1/2"])
    for tokens in itertools.permutations(range(3)):
        root = tree([p] * 4, [None] * 4, tokens, [0] * 3)
        for parameters in SOME["threshold"]:
            assert first(after(partial(RULES["threshold"].verify, **parameters), root))[0] == 0


# The ensemble.


@pytest.mark.parametrize("w", [0, F(1, 3), F(1, 2), 1])
def test_drafted_positions_of_the_ensemble_are_an_exact_sample_of_the_mixture(w):
    rule = variant("ensemble", w=w)

    def mixture_of(p, q):
        return lambda text: tuple(
            w * a + (1 - w) * b for a, b in zip(p(text), q(text), strict=True)
        )

    for p, q in PAIRS:
        mixed = mixture_of(same(p), same(q))
        assert first_token(rule, p, q) == mixed(())
        assert tv(p, mixed(())) == (1 - w) * tv(p, q)
        out = round_law(rule, same(p), same(q), 1)
        assert sum(mass for text, mass in out.items() if len(text) == 2) == 1 - w * tv(p, q)
    mixed = mixture_of(*C4)
    assert deviation(rule, *C4, shape=2, length=2, rounds=1, target=mixed) == 0
    there, here = round_law(rule, *C4, 2), round_law(RULES["token"], mixed, C4[1], 2)
    for text in there.keys() | here.keys():
        if len(text) == 3:  # the bonus is the target's own
            bonus = C4[0](text[:2])[text[2]]
            assert there[text] * mixed(text[:2])[text[2]] == here[text] * bonus
        else:
            assert there[text] == here[text]


def test_the_ensemble_emits_tokens_that_the_target_excludes():
    p, q = as_law([0, "1/2", "1/2"]), as_law(["1/2", "1/2", 0])
    assert first_token(RULES["ensemble"], p, q) == (F(1, 4), F(1, 2), F(1, 4))


# Typical acceptance.

MEDUSA = {"epsilon": F(3, 10), "delta": F(9, 100)}
"""The default arguments of `evaluate_posterior`."""


def by_powers(chance, row, delta, inside=0):
    """Return both sides of chance > delta exp(-H), raised to the common denominator of the law."""
    common = math.lcm(*(as_fraction(w).denominator for w in row))
    right = math.prod((w + inside) ** int(w * common) for w in map(as_fraction, row))
    return (as_fraction(chance) / delta) ** common, right


def test_the_bar_of_the_known_pair():
    p = A[0]
    # exp(-H) is the sixth root of (1/2)^3 (1/3)^2 (1/6)^1 = 1/432.
    assert F(327, 10000) ** 6 < F(9, 100) ** 6 / 432 < F(328, 10000) ** 6
    assert not exceeds(F(327, 10000), p, F(9, 100))
    assert exceeds(F(328, 10000), p, F(9, 100))
    for parameters in ({}, MEDUSA):
        for x in range(3):
            root = chain([p, p], [None] * 2, [x])
            assert RULES["typical"].verify(root, None, **parameters) == (x, 0)


@pytest.mark.parametrize("inside", [0, F(1, 100000), F(1, 3)])
def test_the_comparison_with_the_entropy_is_exact(inside, record_property):
    laws = {*GRID, *(normalise(map(F, row)) for row in itertools.product(range(5), repeat=4)
                     if any(row))}  # fmt: skip
    cases = ties = 0
    for row in laws:
        for delta in (F(3, 10), F(1, 2), F(1), F(2)):
            for chance in {F(0), *row}:
                left, right = by_powers(chance, row, delta, inside)
                assert exceeds(chance, row, delta, inside) == (left > right), (chance, row, delta)
                cases, ties = cases + 1, ties + (left == right)
    record_property("cases", cases)
    record_property("ties", ties)
    assert ties > 0 or inside


def test_equality_with_the_bar_is_not_enough():
    half = as_law(["1/2", *["1/8"] * 4])  # two bits of entropy: exp(-H) is 1/4
    assert not exceeds(F(1, 4), half)
    assert not exceeds(F(1, 8), half, F(1, 2))
    assert exceeds(F(1, 8), half, F(1, 2) - F(1, 10**90))
    assert exceeds(F(1, 4) + F(1, 10**200), half)
    assert not exceeds(F(1, 4) - F(1, 10**200), half)


def test_equality_is_recognised_where_powers_are_out_of_reach():
    """The law 2^-1, ..., 2^-59 and four times 2^-61 has two bits of entropy, and N = 2^61."""
    p = as_law([*(F(1, 2**k) for k in range(1, 60)), *[F(1, 2**61)] * 4])
    assert sum(F(k, 2**k) for k in range(1, 60)) + 4 * F(61, 2**61) == 2
    assert not exceeds(F(1, 4), p)
    assert exceeds(F(1, 4) + F(1, 10**50), p)
    root = chain([p, p], [None] * 2, [1])
    assert RULES["typical"].verify(root, None, epsilon=1, delta=1) == (0,)
    assert RULES["typical"].verify(root, None, epsilon=1, delta=1 - F(1, 10**50)) == (1, 0)


def test_a_certain_target_has_no_entropy_and_zeros_add_none():
    sharp = as_law([0, 1, 0])
    assert not exceeds(F(1), sharp)
    assert exceeds(F(1), sharp, F(99, 100))
    assert not exceeds(F(0), sharp, F(1, 10**9))
    two, four = as_law(["1/3", "2/3"]), as_law(["1/3", 0, "2/3", 0])
    for chance in (F(1, 3), F(1, 2), F(52, 100), F(53, 100), F(2, 3)):
        assert exceeds(chance, two) == exceeds(chance, four)
    assert RULES["typical"].verify(chain([sharp] * 3, [None] * 3, [1, 0]), None) == (1, 1)


def test_floats_count_at_their_exact_binary_value():
    row = (0.1, 0.2, 0.7)
    exact = tuple(map(rational, row))
    root, twin = (tree([r] * 3, [None] * 3, [0, 1], [0, 0]) for r in (row, exact))
    for parameters in SOME["typical"]:
        verify = partial(RULES["typical"].verify, choose=None, **parameters)
        assert verify(root) == verify(twin)
    assert not exceeds(0.5, (0.5, 0.5))
    assert exceeds(math.nextafter(0.5, 1), (0.5, 0.5))


def test_medusa_adds_to_p_inside_the_logarithm():
    """Which raises the bar a little: exp of the sum of p log(p + 1e-5)."""
    p, medusa = as_law(["1/2", "1/2"]), F(1, 100000)
    bar = F(50001, 100000)
    assert exceeds(bar, p)
    assert not exceeds(bar, p, inside=medusa)
    assert exceeds(bar + F(1, 10**40), p, inside=medusa)
    root = chain([p, p], [None] * 2, [1])
    assert RULES["typical"].verify(root, None, epsilon=1, delta=F(999999, 1000000)) == (1, 0)
    sees = RULES["typical"].verify(root, None, epsilon=1, delta=F(999999, 1000000), inside=medusa)
    assert sees == (0,)


def test_the_longest_path_wins_and_ties_go_to_the_likelier():
    p, sure = as_law(["5/10", "3/10", "2/10"]), as_law(["1/10", "8/10", "1/10"])
    verify = RULES["typical"].verify
    flat = tree([p] * 4, [None] * 4, [2, 1, 0], [0, 0, 0])
    assert verify(flat, None) == (0, 0), "the likeliest of three siblings"
    deep = tree([p, p, sure, p, p], [None] * 5, [0, 2, 1, 1], [0, 0, 2, 1])
    # Paths 0 1 with 15/100 and 2 1 with 16/100.
    assert verify(deep, None) == (2, 1, 0)
    longer = tree([p] * 4, [None] * 4, [0, 2, 2], [0, 0, 2])
    assert verify(longer, None) == (2, 2, 0), "length before likelihood"
    tied = tree(
        [as_law(["1/2", "1/2"]), as_law([0, 1]), as_law([1, 0])], [None] * 3, [1, 0], [0, 0]
    )
    assert verify(tied, None) == (1, 1), "the first drafted"
    assert verify(tree([p, sure, p], [None] * 3, [1, 1], [0, 0]), None) == (1, 1), "equal siblings"


def test_the_closing_token_comes_from_the_row_of_the_first_refusal():
    """Not from row 0 whatever was refused, as vLLM's sampler once had it (vllm#5131, #8562)."""
    p0, p1, p2 = as_law(["6/10", "4/10", 0]), as_law(["1/10", 0, "9/10"]), as_law([0, 1, 0])
    root = chain([p0, p1, p2], [None] * 3, [1, 1])
    assert RULES["typical"].verify(root, None) == (1, 2)
    assert RULES["typical"].verify(chain([p0, p1, p2], [None] * 3, [2, 2]), None) == (0,)
    assert RULES["typical"].verify(chain([p0, p1, p2], [None] * 3, [1, 2]), None) == (1, 2, 1)


def test_the_constant_threshold_is_a_case_of_typical_acceptance():
    for p in GRID:
        for x in range(3):
            for bar in (F(1, 4), F(1, 3), F(1, 2)):
                emitted = RULES["typical"].verify(
                    chain([p, p], [None] * 2, [x]), None, epsilon=bar, delta=3 * bar
                )
                assert (len(emitted) == 2) == (p[x] > bar)


def test_drawn_drafts_that_all_pass_come_out_as_the_draft():
    drawn = replace(RULES["typical"], draft=with_replacement)
    for p, q in (A, B):
        assert first_token(drawn, p, q, (1,)) == q
        assert deviation(drawn, same(p), same(q), shape=(1,), length=1) == tv(p, q)


def test_typical_acceptance_is_certain_given_the_draft():
    for p, q in (C4, I4):
        assert set(round_law(RULES["typical"], p, q, (2, 2)).values()) == {1}
    assert RULES["typical"].draft is likeliest


# Parameters.


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("typical", {"epsilon": 0}, "epsilon = 0 is outside 0 < epsilon <= 1"),
        ("typical", {"epsilon": F(3, 2)}, "epsilon = 3/2 is outside 0 < epsilon <= 1"),
        ("typical", {"delta": 0}, "delta = 0 is outside delta > 0"),
        ("typical", {"inside": -1}, "inside = -1 is outside inside >= 0"),
        ("typical", {"inside": math.nan}, "inside = nan is outside inside >= 0"),
        ("lenient", {"lenience": 0}, "lenience = 0 is outside 0 < lenience <= 1"),
        ("lenient", {"lenience": 2, "greedy": True}, "lenience = 2 is outside 0 < lenience <= 1"),
        ("lenient_scaled", {"lenience": -1}, "lenience = -1 is outside 0 < lenience <= 1"),
        ("threshold", {"single": 0}, "single = 0 is outside 0 < single <= 1"),
        ("threshold", {"acc": 0}, "acc = 0 is outside 0 < acc <= 1"),
        ("threshold", {"acc": math.nan}, "acc = nan is outside 0 < acc <= 1"),
        ("ensemble", {"w": F(-1, 2)}, "w = -1/2 is outside 0 <= w <= 1"),
        ("ensemble", {"w": 2}, "w = 2 is outside 0 <= w <= 1"),
        ("lenient", {"lenience": None}, "lenience: None is not a finite number"),
        ("lenient_scaled", {"lenience": [1]}, r"lenience: \[1\] is not a finite number"),
        ("ensemble", {"w": "half"}, "w: 'half' is not a finite number; write 3/10"),
        ("typical", {"delta": "3/0"}, "delta: '3/0' is not a finite number"),
        ("threshold", {"acc": "9/8"}, "acc = 9/8 is outside 0 < acc <= 1"),
    ],
)
def test_parameters_outside_their_range_are_refused(name, parameters, words):
    with pytest.raises(ValueError, match=words):
        variant(name, **parameters).verify(chain([B[0]] * 2, [B[1]] * 2, [0]), None)


# Whether a draft is submitted must not depend on the draft (DSpark, appendix A).

DSPARK = as_law(["7/10", "3/10"]), as_law(["1/2", "1/2"])


def test_a_draft_dropped_for_what_it_is_moves_the_output():
    p, q = (same(row) for row in DSPARK)
    dropping = replace(RULES["token"], draft=unlikely_draft_dropped)
    out = round_law(dropping, p, q, 1)
    assert first(out) == (F(17, 20), F(3, 20), 0)
    assert deviation(dropping, p, q, shape=1, length=1) == F(3, 20)
    # The target's own draw does not care which drafts it is compared with.
    matching = replace(RULES["match"], draft=unlikely_draft_dropped)
    assert deviation(matching, p, q, shape=2, length=3) == 0


def test_stopping_behind_an_unlikely_draft_and_still_submitting_it_is_safe():
    def stopping(p, q, shape, choose, context):
        root = with_replacement(p, q, shape, choose, context)
        ((x, child),) = root.children
        return root if x == 0 else replace(root, children=((x, replace(child, children=())),))

    p, q = (same(row) for row in DSPARK)
    assert deviation(replace(RULES["token"], draft=stopping), p, q, shape=2, length=3) == 0
