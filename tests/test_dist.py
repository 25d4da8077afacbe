import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specref import dist
from specref.dist import (
    approximate_exp,
    as_fraction,
    as_law,
    excess,
    is_exact,
    keep,
    normalise,
    rational,
    top,
    tv,
    without,
)
from specref.rules import RULES

P = (F(1, 2), F(3, 10), F(1, 5))
Q = (F(3, 5), F(1, 10), F(3, 10))

weights = st.lists(st.integers(0, 9), min_size=3, max_size=5).filter(any)


@st.composite
def pairs(draw):
    size = draw(st.integers(2, 5))
    rows = st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any)
    return normalise(draw(rows)), normalise(draw(rows))


@pytest.fixture(params=["installed rationals", "fractions"])
def rationals(request, monkeypatch):
    """Run a test on whatever rational type is installed, and on `Fraction`."""
    if request.param == "fractions":
        monkeypatch.setattr(dist, "_Rational", F)
    return dist._Rational


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (3, F(3)),
        (True, F(1)),
        ("3/10", F(3, 10)),
        ("0.3", F(3, 10)),
        (" 1/4 ", F(1, 4)),
        ("25e-2", F(1, 4)),
        (F(2, 6), F(1, 3)),
        (Decimal("0.3"), F(3, 10)),
        (0.5, F(1, 2)),
        (0.1, F(3602879701896397, 36028797018963968)),
        (np.float64(0.25), F(1, 4)),
        (np.float32(0.1), F(13421773, 134217728)),
        (np.float16(0.5), F(1, 2)),
        (np.int64(7), F(7)),
        (np.uint8(7), F(7)),
        (np.array(0.5), F(1, 2)),
    ],
)
@pytest.mark.usefixtures("rationals")
def test_a_number_is_read_at_its_exact_value(value, exact):
    assert rational(value) == exact
    assert is_exact(rational(value))
    assert as_fraction(rational(value)) == exact


def test_a_rational_of_either_type_is_read_as_the_other(rationals):
    assert rational(F(1, 3)) == rational(rational("1/3"))
    assert isinstance(rational(F(1, 3)), rationals)
    assert type(as_fraction(rational("1/3"))) is F


def test_a_denominator_divides():
    assert rational(3, 4) == F(3, 4)
    assert rational("1/2", 3) == F(1, 6)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, "nan", "inf", "half", "", "1/0", None, 1j, [0.5],
     np.float32("nan"), Decimal("NaN"), Decimal("Infinity"), np.array([0.5, 0.5]), "1e99999999",
     Decimal("1e-999999")],
)  # fmt: skip
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match=r"is not a finite number; write 3/10, 0\.3 or an integer"):
        rational(value)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([], r"target is empty; a law needs at least one token"),
        (["1/2", "-1/2", 1], r"target\[1\] = -1/2 is negative; a law has entries >= 0"),
        (["1/2", "1/3"], r"target sums to 5/6, not 1; .* strings .* or pass normalise\(\.\.\.\)"),
        ([0, 0], r"target sums to 0, not 1"),
        ([0.1, 0.2, 0.7], r"target sums to 1 -2\.78e-17, not 1; floats count at their exact bin"),
        ([math.nan, 1], r"target: nan is not a finite number"),
        ([math.inf, 1], r"target: inf is not a finite number"),
        (["a half", "1/2"], r"target: 'a half' is not a finite number"),
    ],
)
def test_a_row_that_is_no_law_is_named_with_the_cure(row, complaint):
    with pytest.raises(ValueError, match=complaint):
        as_law(row, "target")


@pytest.mark.parametrize(
    "row",
    [["0.1", "0.2", "0.7"], normalise([1, 2, 7]), normalise(["0.1", "0.2", "0.7"]), P, [0.5, 0.5]],
)
def test_the_cures_that_the_error_names_do_cure(row):
    assert sum(as_law(row)) == 1


def test_integers_are_normalised_exactly():
    assert normalise([1, 2, 4]) == (F(1, 7), F(2, 7), F(4, 7))
    assert all(is_exact(w) for w in normalise([1, 2, 4]))
    assert all(is_exact(w) for w in without((0, 1), 0))


def test_floats_stay_floats():
    row = normalise([0.5, 1.5])
    assert row == (0.25, 0.75)
    assert all(isinstance(w, float) for w in (*row, *without(row, 0), tv(row, (1.0, 0.0))))


def test_weights_that_sum_to_zero_have_no_law():
    with pytest.raises(ValueError, match="the weights sum to zero"):
        normalise([F(0), F(0)])


def test_the_residual_is_what_the_target_still_lacks():
    assert excess(P, Q) == (0, 1, 0)
    assert excess(P, (F(1, 5), F(1, 5), F(3, 5))) == (F(3, 4), F(1, 4), 0)


def test_equal_laws_leave_no_residual():
    with pytest.raises(ValueError, match="the weights sum to zero"):
        excess(P, P)


def test_laws_of_different_length_have_no_residual():
    with pytest.raises(ValueError, match="zip"):
        excess(P, P[:2])


@given(pairs())
def test_the_lower_envelope_and_the_residual_make_up_the_target(pair):
    p, q = pair
    refused = tv(p, q)
    if refused == 0:
        assert p == q
        return
    residual = excess(p, q)
    assert sum(residual) == 1
    assert all(min(a, b) + refused * r == a for a, b, r in zip(p, q, residual, strict=True))


@given(pairs())
def test_total_variation_is_a_distance_between_zero_and_one(pair):
    p, q = pair
    assert tv(p, q) == tv(q, p) == 1 - sum(min(a, b) for a, b in zip(p, q, strict=True))
    assert 0 <= tv(p, q) <= 1
    assert (tv(p, q) == 0) == (p == q)


def test_total_variation_of_mappings_counts_missing_outcomes_as_zero():
    assert tv({"a": F(1, 2), "b": F(1, 2)}, {"b": F(1, 2), "c": F(1, 2)}) == F(1, 2)
    assert tv({}, {}) == 0
    assert type(tv({0: 1}, {1: 1})) is F


@given(weights, st.data())
def test_removing_a_token_is_conditioning_on_the_others(row, data):
    law = normalise(row)
    x = data.draw(st.integers(0, len(law) - 1))
    rest = without(law, x)
    assert rest[x] == 0
    if law[x] == 1:
        assert rest == (0,) * len(law)
    else:
        assert rest == keep(law, set(range(len(law))) - {x})
        assert all(rest[y] * (1 - law[x]) == law[y] for y in range(len(law)) if y != x)


def test_the_likeliest_tokens_come_first_and_ties_in_token_order():
    assert top((F(1, 4), F(1, 4), F(1, 2)), 3) == (2, 0, 1)
    assert top((F(1, 2), F(1, 2)), 5) == (0, 1)
    assert top((F(1, 2), F(1, 2)), 0) == ()


def test_a_filter_renormalises_what_it_keeps():
    assert keep(P, (0, 2)) == (F(5, 7), 0, F(2, 7))
    with pytest.raises(ValueError, match="the weights sum to zero"):
        keep((1, 0), [1])


def test_a_float_is_not_passed_off_as_exact():
    assert not is_exact(0.5)
    with pytest.raises(TypeError, match=r"0\.5 is not exact: somewhere floats got into"):
        as_fraction(0.5)


def test_the_exponential_is_pinned_to_a_double():
    assert approximate_exp(F(1, 2)) == F(math.exp(0.5))
    assert is_exact(approximate_exp(rational("1/2")))


EVERYTHING = """
import sys
if "{block}" == "block":
    sys.modules["gmpy2"] = None
from specref import Table, deviation, law, verify, RULES
from specref.dist import _Rational, as_fraction
p = Table({{(): [1, 0, 0], (0,): ["1/4", "1/2", "1/4"], (1,): ["0.1", "0.2", "0.7"],
           (2,): ["1/3", "1/3", "1/3"]}}, order=1)
q = Table({{(): ["1/5", "1/5", "3/5"], (0,): ["1/7", "2/7", "4/7"]}} | {{(x,): ["1/2", 0, "1/2"]
           for x in (1, 2)}}, order=1)
print(_Rational.__module__, file=sys.stderr)
for name, rule in RULES.items():
    shape = 2 if rule.shape == "chain" else (2, 2)
    print(name, deviation(rule, p, q, shape=shape, length=2))
    out = law(lambda choose: rule.verify(rule.draft(p, q, shape, choose, (1,)), choose))
    print(name, sorted((text, str(mass)) for text, mass in out.items()))
rows = [[0.1, 0.2, 0.7], ["1/4", "1/2", "1/4"], [1, 0, 0]]
done = verify("token", rows, rows[::-1], [0, 1], uniforms=[0.3, "1/3", 0.999])
print(done.emitted, [str(w) for step in done.trace.steps for w in step.weights])
print(verify("token", rows, rows[::-1], [0, 1], seed=5, start=3).emitted)
"""


def test_results_do_not_depend_on_the_rational_type():
    said = {}
    for block in ("block", "keep"):
        run = subprocess.run(
            [sys.executable, "-c", EVERYTHING.format(block=block)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        said[run.stderr.strip()] = run.stdout
    if "gmpy2" not in said:
        pytest.skip("gmpy2 is not installed, so there is one rational type only")
    assert said.keys() == {"gmpy2", "fractions"}
    assert said["gmpy2"] == said["fractions"]
    assert said["gmpy2"].count("\n") == 2 * len(RULES) + 2


BAD = [math.nan, math.inf, -math.inf, -1, F(-1, 2), np.float32("nan"), np.float32(-1)]


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_weight_is_named(bad):
    with pytest.raises(ValueError, match=r"weights\[1\] = .* is no weight; weights are finite and"):
        normalise([1, bad])
    for p, q, name in (([1, bad], [1, 0], "p"), ([1, 0], [0, bad], "q")):
        with pytest.raises(ValueError, match=rf"{name}\[1\] = .* is no weight"):
            excess(p, q)


def test_a_sum_that_overflows_is_told():
    with pytest.raises(ValueError, match="weights sums to inf; scale the weights down"):
        normalise([1e308, 1e308])


@pytest.mark.parametrize("row", ["12", b"12", {0: 1}, {1, 2}, 5, None])
def test_what_is_no_row_is_named(row):
    for call, name in ((normalise, "weights"), (as_law, "law"), (lambda r: excess(r, [1]), "p")):
        with pytest.raises(ValueError, match=rf"^{name} = .* write "):
            call(row)
