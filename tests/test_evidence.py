"""The two instruments for black boxes keep their promises, by simulation and by formula."""

from math import exp, inf, log

import numpy as np
import pytest

from specref.gate.evidence import ALARM, certified_tv, log_e_value, rows_needed, weigh

LAW = {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}


def counts(rng, law, rows):
    drawn = rng.multinomial(rows, list(law.values()))
    return dict(zip(law, (int(n) for n in drawn), strict=True))


def test_the_e_value_is_one_in_the_mean_under_the_null():
    """An average over all samples of size 6, exactly: the e-value is a likelihood ratio."""
    law = {0: 0.5, 1: 0.3, 2: 0.2}
    total = 0.0
    rows = 6
    for a in range(rows + 1):
        for b in range(rows + 1 - a):
            n = {0: a, 1: b, 2: rows - a - b}
            ways = 1
            left = rows
            for count in n.values():
                ways *= _choose(left, count)
                left -= count
            chance = ways * np.prod([law[o] ** c for o, c in n.items()])
            total += chance * exp(log_e_value(law, n))
    assert total == pytest.approx(1, abs=1e-9)


def _choose(n, k):
    return 1 if k in (0, n) else _choose(n - 1, k - 1) + _choose(n - 1, k)


def test_the_alarm_stays_silent_under_the_null_however_often_one_looks():
    rng = np.random.default_rng(0)
    loudest = 0.0
    for _ in range(300):
        seen = dict.fromkeys(LAW, 0)
        for _ in range(12):
            for outcome, count in counts(rng, LAW, 500).items():
                seen[outcome] += count
            loudest = max(loudest, log_e_value(LAW, seen))
    # Ville: P(ever e >= 1/a) <= a; over 300 runs e >= 1e6 has probability at most 3e-4.
    assert loudest < log(1 / ALARM)


@pytest.mark.parametrize("tv", [0.2, 0.05, 0.02])
def test_the_alarm_goes_off_for_a_wrong_law_long_before_the_certificate(tv):
    rng = np.random.default_rng(1)
    wrong = {**LAW, 0: LAW[0] + tv, 1: LAW[1] - tv}
    seen = counts(rng, wrong, rows_needed(len(LAW), tv) // 2)
    assert log_e_value(LAW, seen, tv) > log(1 / ALARM)


def test_an_impossible_outcome_is_certain_after_one_look():
    assert log_e_value({0: 1.0}, {0: 10**6, 1: 1}) == inf
    seen = weigh({0: 1.0, 1: 0.0}, {0: 10**6, 1: 1}, 0.02)
    assert seen.impossible == 1
    assert seen.verdict(0.02, 1) == "fail"


def test_the_certificate_covers_the_truth_and_reaches_what_was_asked():
    rng = np.random.default_rng(2)
    for _ in range(200):
        n = rows_needed(len(LAW), 0.05)
        assert certified_tv(LAW, counts(rng, LAW, n)) <= 0.05
        far = {**LAW, 0: LAW[0] + 0.05, 1: LAW[1] - 0.05}
        assert certified_tv(LAW, counts(rng, far, n)) > 0.05


def test_rows_needed_are_those_of_the_formula():
    assert rows_needed(16, 0.02) == 243_986
    assert [rows_needed(k, 0.05) for k in (4, 16, 64)] == [24_832, 39_038, 77_051]


def test_without_rows_nothing_is_certified():
    assert certified_tv(LAW, {}) == 1.0
    assert weigh(LAW, {}, 0.05).verdict(0.05, 1) == "inconclusive"
