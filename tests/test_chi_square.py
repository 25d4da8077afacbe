"""Chi-square: known figures, level and power by enumeration, and that it decides nothing."""

import itertools
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction as F
from math import comb, inf, nan, sqrt

import numpy as np
import pytest
from scipy import stats

from specref.dist import normalise, tv
from specref.faults import FAULTS
from specref.gate import samples
from specref.gate.chi_square import LEVEL, chi_square, folded, holm, remark
from specref.gate.evidence import ALARM
from specref.gate.loading import load
from specref.gate.report import Report
from specref.gate.session import PROFILES, Session
from specref.subjects.programs import HashChoices, of_fault, of_rule
from tests.fixtures import grid

HALF = {0: F(1, 2), 1: F(1, 2)}


def named(row):
    return dict(enumerate(row))


# Figures that others have computed.


def test_mendels_peas_have_the_statistic_of_the_textbooks():
    law = {"round yellow": F(9, 16), "round green": F(3, 16), "wrinkled yellow": F(3, 16)}
    law["wrinkled green"] = F(1, 16)
    seen = dict(zip(law, (315, 108, 101, 32), strict=True))
    found = chi_square(law, seen, 0.05)
    assert (round(found.statistic, 3), found.df, found.cells, found.merged) == (0.470, 3, 4, 0)
    assert found.p_value == pytest.approx(0.925, abs=5e-4)


@pytest.mark.parametrize("size", [2, 5, 40])
def test_statistic_and_p_value_are_those_of_scipy(size):
    rng = np.random.default_rng(size)
    law = normalise([F(int(w)) for w in rng.integers(5, 50, size)])
    for rows in (4_000, 40_000):
        counts = rng.multinomial(rows, [float(w) for w in law])
        found = chi_square(named(law), named(counts), 0.1)
        known = stats.chisquare(counts, rows * np.array([float(w) for w in law]))
        assert found.merged == 0
        assert found.statistic == pytest.approx(known.statistic, rel=1e-12)
        assert found.p_value == pytest.approx(known.pvalue, rel=1e-9)


@pytest.mark.parametrize(("df", "power"), [(1, 0.85), (2, 0.77), (3, 0.71), (4, 0.66)])
def test_the_power_is_that_of_cohens_tables(df, power):
    """Cohen 1988, table 7.3: w = 0.3, N = 100, a = 0.05; w is twice the TV of the worst law."""
    law = named([F(1, df + 1)] * (df + 1))
    found = chi_square(law, {0: 100}, 0.15)
    assert (found.df, round(found.power, 2)) == (df, power)


# Its level and its power, by enumeration.


def binomial(n, chance):
    return [comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1)]


def berry_esseen(n, chance):
    """Return how far a binomial CDF can be from the normal one (Schulz 2016)."""
    other = 1 - chance
    return (
        (sqrt(10) + 3) / (6 * sqrt(2 * np.pi)) * (chance**2 + other**2) / sqrt(n * chance * other)
    )


@pytest.mark.parametrize("n", [20, 60, 180])
@pytest.mark.parametrize("chance", [0.5, 0.4, 0.25])
def test_p_values_of_two_cells_are_uniform_as_far_as_berry_and_esseen_say(n, chance):
    law = {1: chance, 0: 1 - chance}
    p_values = [chi_square(law, {1: k, 0: n - k}, 0.1).p_value for k in range(n + 1)]
    off = off_uniform(zip(p_values, binomial(n, chance), strict=True))
    assert off <= 2 * berry_esseen(n, chance)  # one for each end of the interval


@pytest.mark.parametrize(
    ("law", "sizes"), [((6, 3, 1), (10, 30, 90)), ((3, 2, 2, 1), (8, 14, 22))], ids=["3", "4"]
)
def test_p_values_come_nearer_to_uniform_with_more_draws(law, sizes):
    """Over every sample there is, also where cells are merged."""
    exact = normalise(map(F, law))
    off = [off_uniform(every_sample(exact, n)) for n in sizes]
    assert off == sorted(off, reverse=True)
    assert off[-1] < off[0] / 2


def off_uniform(weighted):
    """Return the largest difference between a level and the chance to reject at it."""
    mass = Counter()
    for p_value, weight in weighted:
        mass[p_value] += weight
    assert sum(mass.values()) == pytest.approx(1)
    off = below = 0.0
    for level in sorted(mass):
        off = max(off, abs(below - level), abs(below + mass[level] - level))
        below += mass[level]
    return off


def every_sample(law, n):
    """Yield the p-value of every sample of n draws, with its chance."""
    for counts in compositions(n, len(law)):
        chance, left = 1.0, n
        for count, weight in zip(counts, law, strict=True):
            chance *= comb(left, count) * float(weight) ** count
            left -= count
        yield chi_square(named(law), named(counts), 0.1).p_value, chance


def compositions(n, parts):
    if parts == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, parts - 1):
            yield (first, *rest)


@pytest.mark.parametrize("n", [50, 200, 500])
@pytest.mark.parametrize("gap", [0.05, 0.1, 0.2])
def test_the_power_is_the_chance_to_reject_the_least_favourable_law(n, gap):
    """With two equal cells, the laws at this TV are just these, and all samples can be counted."""
    wrong = 0.5 + gap
    power = rejected = 0.0
    for k, weight in enumerate(binomial(n, wrong)):
        found = chi_square(HALF, {1: k, 0: n - k}, gap)
        power = found.power
        rejected += weight * (found.p_value <= LEVEL)
    # The formula has a normal law with the variance of the null; the true one is a little less.
    normal, mean = stats.norm.sf, 2 * sqrt(n) * gap
    cut = stats.norm.isf(LEVEL / 2)
    spread = 2 * sqrt(wrong * (1 - wrong))
    narrow = normal((cut - mean) / spread) + normal((cut + mean) / spread)
    assert power == pytest.approx(normal(cut - mean) + normal(cut + mean))
    assert abs(rejected - narrow) <= 2 * berry_esseen(n, wrong)


LAWS = [law for law in grid(4, 8) if law[0] >= law[1] >= law[2] >= law[3] > 0]


@pytest.mark.parametrize("n", [16, 640])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: " ".join(str(w) for w in law))
def test_no_law_at_a_tv_is_harder_to_see_than_the_one_that_the_power_is_stated_for(law, n):
    """Counts in proportion to Q make the statistic the noncentrality of Q."""
    for other in grid(4, 8):
        counts = named([int(n * w) for w in other])
        found = chi_square(named(law), counts, 0.5)
        hidden = sum(sorted(law)[: found.merged])  # where it is poor, it is merged
        seen = max(F(0), tv(law, other) - hidden)
        assert found.statistic >= float(4 * n * seen**2) * (1 - 1e-12)


def test_the_bound_is_reached_where_mass_moves_between_halves_in_proportion():
    law, other = (F(3, 10), F(2, 10), F(4, 10), F(1, 10)), (F(36), F(24), F(32), F(8))
    found = chi_square(named(law), named([int(w) for w in other]), 0.1)
    assert found.statistic == pytest.approx(4 * 100 * float(tv(law, normalise(other))) ** 2)


def test_power_grows_with_the_draws_and_falls_with_the_tests():
    law = named([F(1, 4)] * 4)
    powers = [chi_square(law, {0: n}, 0.05).power for n in (10, 100, 1_000, 10_000)]
    assert powers == sorted(powers)
    assert powers[-1] > 0.999
    many = [chi_square(law, {0: 500}, 0.05, tests=m).power for m in (1, 4, 16)]
    assert many == sorted(many, reverse=True)
    assert many[0] > 1.5 * many[-1]


# Cells.


@pytest.mark.parametrize(
    ("masses", "rows", "cells", "merged"),
    [
        ((5, 5), 10, 2, 0),
        ((5, 4, 1), 100, 3, 0),
        ((5, 4, 1), 40, 2, 2),  # 4 are expected of the last: it takes the next with it
        ((6, 1, 1, 1, 1), 20, 2, 4),  # 2 + 2 + 2, and the last 2 with them, not with the 12
        ((5, 1, 1, 1, 1, 1), 30, 3, 5),  # 3 + 3, then 3 + 3 + 3
        ((6, 1, 1, 1, 1), 10, 1, 5),  # 1 + 1 + 1 + 1 are 4 only
        ((1,) * 10, 50, 10, 0),
        ((1,) * 10, 49, 5, 10),
        ((1,) * 10, 10, 2, 10),
        ((1,) * 10, 9, 1, 10),
        ((1, 1), 0, 1, 2),
        ((1,), 100, 1, 0),
    ],
)  # fmt: skip
def test_poor_cells_are_merged_rarest_first(masses, rows, cells, merged):
    law = named(normalise(map(F, masses)))
    found = chi_square(law, {0: rows}, 0.05)
    assert (found.cells, found.df, found.merged) == (cells, cells - 1, merged)


def test_with_one_cell_nothing_is_tested():
    for law, counts in (({0: 1}, {0: 100}), (HALF, {0: 3}), (HALF, {})):
        found = chi_square(law, counts, 0.05)
        assert (found.statistic, found.p_value, found.power) == (0, 1, 0)


def test_draws_of_mass_zero_are_left_out_and_counted():
    law = {0: F(1, 2), 1: F(1, 2), 2: F(0)}
    with_some = chi_square(law, {0: 60, 1: 40, 2: 7, 3: 5}, 0.05)
    without = chi_square(HALF, {0: 60, 1: 40}, 0.05)
    assert with_some.impossible == 12
    assert replace(with_some, impossible=0) == without


def test_a_mass_that_doubles_cannot_hold_is_not_impossible():
    tiny = F(1, 10**400)
    found = chi_square({0: tiny, 1: 1 - tiny}, {0: 1, 1: 9}, 0.1)
    assert (found.impossible, found.cells, found.merged) == (0, 1, 2)


def test_floats_and_fractions_of_one_law_agree():
    counts = {0: 30, 1: 40, 2: 30}
    a = chi_square({0: 0.3, 1: 0.3, 2: 0.4}, counts, 0.1)
    b = chi_square({0: F(3, 10), 1: F(3, 10), 2: F(2, 5)}, counts, 0.1)
    assert a.statistic == pytest.approx(b.statistic, rel=1e-12)
    assert (a.cells, a.merged) == (b.cells, b.merged)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"expected": {}}, "expected = {} is no law"),
        ({"expected": [0.5, 0.5]}, r"expected = \[0.5, 0.5\] is no law; pass"),
        ({"expected": {0: 1, 1: 1}}, "expected sums to 2, not 1; pass masses"),
        ({"expected": {0: F(1, 2), 1: F(499, 1000)}}, "expected sums to 0.999"),
        ({"expected": {0: 0.0, 1: 0.0}}, "expected sums to 0, not 1"),
        ({"expected": {0: 1.5, 1: -0.5}}, r"expected\[1\] = -0.5 is negative"),
        ({"expected": {0: nan, 1: 1}}, r"expected\[0\]: nan is not a finite number"),
        ({"expected": {0: inf}}, r"expected\[0\]: inf is not a finite number"),
        ({"expected": {0: None, 1: 1}}, r"expected\[0\]: None is not a finite number"),
        ({"counts": None}, "counts = None are no counts; pass"),
        ({"counts": {0: -1}}, r"counts\[0\] = -1 is negative; count draws"),
        ({"counts": {0: 0.5}}, r"counts\[0\] = 0.5 is not an integer; count draws"),
        ({"tv": 0}, "tv = 0 is out of range; pass 0 < tv <= 1"),
        ({"tv": 1.1}, "tv = 1.1 is out of range"),
        ({"tv": nan}, "tv: nan is not a finite number"),
        ({"tests": 0}, "tests = 0 is below 1; pass how many tests"),
    ],
)
def test_bad_input_is_named(change, says):
    with pytest.raises(ValueError, match=says):
        chi_square(**({"expected": HALF, "counts": {0: 5, 1: 5}, "tv": 0.1} | change))


# Holm.


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_holm_rejects_what_the_procedure_in_steps_rejects(size):
    values = [F(k, 20) for k in range(21)]
    rng = np.random.default_rng(size)
    for _ in range(200):
        p_values = [values[int(k)] for k in rng.integers(0, 21, size)]
        adjusted = holm(p_values)
        for level in (0.01, 0.04, 0.22, 0.57, 0.93):  # no multiple of 1/20 meets one of these
            assert {at for at, p in enumerate(adjusted) if p <= level} == _in_steps(p_values, level)


def _in_steps(p_values, level):
    rejected, order = set(), sorted(range(len(p_values)), key=lambda at: p_values[at])
    for step, at in enumerate(order):
        if p_values[at] > level / (len(p_values) - step):
            break
        rejected.add(at)
    return rejected


def test_tests_that_are_not_listed_make_holm_stricter_and_never_laxer():
    assert holm([0.01, 0.02], tests=10) == pytest.approx((0.1, 0.18))
    listed = holm([0.001, 0.01, 0.02])
    assert all(a >= b for a, b in zip(holm([0.01, 0.02], tests=3), listed[1:], strict=True))
    assert holm([]) == ()


@pytest.mark.parametrize("p", [-0.1, 1.1, nan, None])
def test_holm_wants_p_values(p):
    with pytest.raises(ValueError, match=r"p_values\[1\].* is (out of range|not a finite number)"):
        holm([0.5, p])


def test_holm_wants_all_tests_counted():
    with pytest.raises(ValueError, match="tests = 1, but there are 2 p-values"):
        holm([0.5, 0.5], tests=1)


# Large vocabularies.

VOCAB = 20_000
ZIPF = named(normalise(F(10**9 // (1 + 7 * x % VOCAB)) for x in range(VOCAB)))


@pytest.fixture(scope="module")
def drawn():
    """Draws from the law, and from the law at another temperature."""
    rng = np.random.default_rng(0)
    masses = np.array([float(w) for w in ZIPF.values()])
    warm = masses**0.95
    return [
        {int(x): int(c) for x, c in Counter(rng.choice(VOCAB, 20_000, p=w / w.sum())).items()}
        for w in (masses, warm)
    ]


def test_a_large_vocabulary_is_folded_by_mass_whatever_was_counted(drawn):
    one, other = (folded(ZIPF, counts, 32) for counts in drawn)
    assert one.law == other.law
    assert sum(one.law.values()) == 1
    assert sum(one.counts.values()) == 20_000
    assert len(one.law) <= 32
    assert one.message == f"20,000 outcomes folded into {len(one.law)} classes of like mass"
    single = max(ZIPF.values())
    assert max(one.law.values()) <= max(single, F(1, 32) + single)


def test_folded_counts_pass_when_right_and_show_a_wrong_temperature(drawn):
    right, warm = (
        chi_square(found.law, found.counts, 0.05)
        for found in (folded(ZIPF, counts, 32) for counts in drawn)
    )
    assert right.p_value > ALARM
    assert right.power > 0.99
    assert warm.p_value < ALARM


def test_an_impossible_token_is_not_folded_away():
    found = folded({**ZIPF, VOCAB: F(0)}, {3: 5, VOCAB: 2, -1: 1}, 8)
    assert found.counts[("impossible", VOCAB)] == 2
    assert chi_square(found.law, found.counts, 0.05).impossible == 3


def test_a_small_law_is_left_as_it_is():
    assert folded(HALF, {0: 2}, 2) == (HALF, {0: 2}, "")


@pytest.mark.parametrize("classes", [0, -1, 2.5])
def test_folding_wants_a_number_of_classes(classes):
    with pytest.raises(ValueError, match=r"classes = .* pass how many classes there may be"):
        folded(HALF, {}, classes)


# How it is shown.


def test_a_remark_tells_the_smallest_p_value_and_the_least_power():
    one = chi_square(HALF, {0: 5_100, 1: 4_900}, 0.02, tests=3)
    two = chi_square(HALF, {0: 70, 1: 30, 2: 9}, 0.02, tests=3)
    adjusted = holm([one.p_value, two.p_value], 3)
    assert remark([one, two], adjusted, 3) == (
        "chi-square p = 0.00019 (Holm, 3 tests), power 0.026 against TV 0.02, "
        "9 impossible draws left out"
    )


def test_a_remark_on_a_law_of_one_outcome_is_empty():
    assert remark([chi_square({0: 1}, {0: 9}, 0.1)], [1.0], 1) == ""


def test_too_few_draws_to_test_anything_have_power_0():
    found = chi_square(HALF, {0: 2, 1: 1}, 0.1)
    assert remark([found], [1.0], 1) == "chi-square p = 1 (Holm, 1 test), power 0 against TV 0.1"


def test_what_is_smaller_than_floats_are_reads_so():
    found = chi_square(HALF, {0: 10**6}, 0.1)
    assert remark([found], [found.p_value], 1).startswith("chi-square p < 1e-300 (Holm, 1 test)")


@pytest.fixture
def judged(monkeypatch):
    """Return what few samples say of a subject."""
    monkeypatch.setitem(PROFILES, "quick", replace(PROFILES["quick"], tv=0.3))
    monkeypatch.setattr(samples, "CALLS", 16)

    def judge(subject):
        report = Report(subject.name, subject.name, "", "quick", 0)
        return samples.judge(Session(load(subject), "token", report, lambda text: None))

    return judge


def test_findings_by_samples_tell_chi_square_and_it_decides_nothing(judged, monkeypatch):
    subject = of_rule("token", choices=HashChoices)
    findings = judged(subject)
    told = {f.claim: f.message for f in findings if "chi-square p = " in f.message}
    assert told.keys() == {"acceptance", "residual", "bonus", "joint"}
    assert all("power > 0.999 against TV 0.3" in text for text in told.values()), told

    def certain(*args, **options):
        return replace(chi_square(*args, **options), p_value=0.0)

    monkeypatch.setattr(samples, "chi_square", certain)
    again = judged(subject)
    assert sum("chi-square p < 1e-300" in f.message for f in again) == 4
    verdicts = [[(f.claim, f.verdict, f.tv) for f in found] for found in (findings, again)]
    assert verdicts[0] == verdicts[1]
    assert {f.verdict for f in findings} == {"pass"}


def test_of_a_sampler_that_is_wrong_chi_square_says_so_too(judged):
    findings = judged(of_fault(FAULTS["bonus_from_draft"], HashChoices))
    (bonus,) = (f for f in findings if f.claim == "bonus")
    assert bonus.verdict == "fail"
    p_value = float(bonus.message.partition("chi-square p = ")[2].split()[0])
    assert p_value < ALARM


def test_drafts_of_its_own_are_tested_too(judged):
    findings = judged(of_fault(FAULTS["argmax_draft"], HashChoices))
    (proposal,) = (f for f in findings if f.claim == "proposal")
    assert proposal.message.startswith("its drafts do not follow the q that it declares; chi-squ")


def test_who_does_not_count_needs_no_scipy():
    code = "import sys, specref.gate.samples; assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_laws_of_a_grid_are_read():
    for a, b in itertools.pairwise(grid(3, 4)):
        assert chi_square(named(a), named([int(400 * w) for w in a]), 0.1).statistic == 0
        far = chi_square(named(a), named([int(400 * w) for w in b]), 0.1)
        assert far.statistic > 0 or far.impossible > 0
