"""Chi-square and exact tests under a grid of temperature x top-k x top-p x min-p.

For the reference, whose law is exact, and for subjects, whose law is measured. The faults are those
of the laws that a verifier is given: drafts that were filtered while q was not, a target that was
not filtered, or in its last row only.
"""

from collections import Counter
from dataclasses import fields, replace
from fractions import Fraction as F

import numpy as np
import pytest

from specref import verify
from specref.decode import complete, deviation, target_law
from specref.dist import tv
from specref.draft import with_replacement
from specref.gate import checks
from specref.gate.chi_square import LEVEL, chi_square, holm
from specref.gate.evidence import ALARM, rows_needed, weigh
from specref.gate.exact import Exact
from specref.gate.grid import DRAFT, EVERY, QUICK, TARGET, Point, parameter_fixtures
from specref.gate.loading import load
from specref.gate.report import Report
from specref.gate.samples import continued
from specref.gate.session import Session
from specref.gate.taped import Taped
from specref.logits import Parameters, law, weights
from specref.rules import RULES
from specref.subjects.programs import of_rule
from tests.fixtures import after
from tests.twins import TWINS

LOSSLESS = {name: rule for name, rule in RULES.items() if rule.lossless}
CHAINS = {fixture.name: fixture for fixture in parameter_fixtures("chain", False)}
"""The points that tell most, by name."""


def rows(roots, **asked):
    """Return the laws of a model under parameters, by last token."""
    return {
        text: law(weights([r * r for r in row]), Parameters(**asked)) for text, row in roots.items()
    }


# What the grid is.


def test_laws_are_those_that_the_parameters_ask_for():
    fixture = Point("2", 3, "0.7", "0.6", "raw").fixture(1)
    asked = rows(TARGET, temperature=2, top_k=3, top_p="0.7", min_p="0.6")
    raw = rows(DRAFT)
    for text in TARGET:
        assert fixture.p[text] == tuple(float(np.float32(float(w))) for w in asked[text])
        assert fixture.q[text] == tuple(float(np.float32(float(w))) for w in raw[text])


def test_a_greedy_draft_is_certain_while_the_target_is_not():
    fixture = Point(draft="greedy").fixture(1)
    assert all(sorted(row) == [0, 0, 0, 1] for row in fixture.q.values())
    assert all(min(row) > 0 for row in fixture.p.values())


@pytest.mark.parametrize("point", QUICK, ids=lambda point: point.name)
def test_every_parameter_of_a_point_counts(point):
    """Off by itself, each changes some law."""
    here = point.fixture(1)
    for at in fields(point):
        if getattr(point, at.name) != at.default:
            there = replace(point, **{at.name: at.default}).fixture(1)
            assert (here.p, here.q) != (there.p, there.q), at.name


def test_the_quick_points_have_every_parameter_and_every_kind_of_draft():
    assert {name for point in QUICK for name in point.parameters.asked()} == {
        "temperature", "top_k", "top_p", "min_p"
    }  # fmt: skip
    assert {point.draft for point in QUICK} == {"same", "raw", "greedy"}


@pytest.mark.parametrize("fixture", CHAINS.values(), ids=CHAINS)
def test_p_and_q_have_zeros_at_different_tokens(fixture):
    def zeros(table):
        return {(text, x) for text, row in table.items() for x, w in enumerate(row) if w == 0}

    p, q = zeros(fixture.p), zeros(fixture.q)
    assert p - q or "temperature 1;" in fixture.name
    assert q - p or "raw" in fixture.name


def test_no_row_of_weights_has_ties_that_presets_would_break_in_their_own_way():
    assert all(len(set(row)) == len(row) for row in (*TARGET.values(), *DRAFT.values()))


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_the_grid_is_few_or_thorough_and_never_repeats_itself(shape):
    few, all_ = (parameter_fixtures(shape, thorough) for thorough in (False, True))
    assert len(few) == len(QUICK)
    assert len(EVERY) > len(all_) > 60
    names = [fixture.name for fixture in all_]
    assert [fixture.name for fixture in few] == names[: len(few)]
    assert len(set(names)) == len(names)
    laws = {(*f.p.items(), *f.q.items()) for f in all_}
    assert len(laws) == len(all_)
    assert all(sum(map(F, row)) == pytest.approx(1) for f in all_ for row in f.p.values())


def test_trees_have_the_width_that_is_asked_for():
    assert {fixture.shape for fixture in parameter_fixtures("tree", False, 3)} == {(3,)}


# The reference.


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_rule_is_lossless_at_every_point_of_the_grid(name):
    rule = LOSSLESS[name]
    for fixture in parameter_fixtures(rule.shape, True, rule.width):
        models = fixture.greedy() if rule.one_hot_target else fixture
        length = models.gamma + 1
        tv = deviation(rule, models.target, models.draft, shape=models.shape, length=length)
        assert tv == 0, models.name


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_rule_is_lossless_over_two_rounds(name):
    rule = LOSSLESS[name]
    for fixture in parameter_fixtures(rule.shape, False, rule.width):
        models = fixture.greedy() if rule.one_hot_target else fixture
        shape = 1 if rule.shape == "chain" else models.shape
        assert deviation(rule, models.target, models.draft, shape=shape, length=4, rounds=2) == 0


ROWS = 600
"""Rounds of `specref.verify` for each rule and fixture."""

RAW_P, RAW_Q = (
    {
        fixture.name: {row: raw[text] for text, row in getattr(fixture, at).items()}
        for fixture in CHAINS.values()
    }
    for at, raw in (("p", Point().fixture(1).p), ("q", Point().fixture(1).q))
)
"""By fixture, from each row to that of the same model without any parameters."""


def unfiltered_q(fixture, p, q):
    """Declare the raw q of drafts that were filtered."""
    return p, [RAW_Q[fixture.name][row] for row in q]


def unfiltered_p(fixture, p, q):
    """Verify with the raw target."""
    return [RAW_P[fixture.name][row] for row in p], q


def unfiltered_bonus(fixture, p, q):
    """Filter the rows that are verified, and leave the bonus row raw."""
    return [*p[:-1], RAW_P[fixture.name][p[-1]]], q


def filtered_bonus(fixture, p, q):
    """Filter the bonus row, and leave those that are verified raw."""
    return [*(RAW_P[fixture.name][row] for row in p[:-1]), p[-1]], q


FAULTS = {fault.__name__: fault for fault in (
    unfiltered_q, unfiltered_p, unfiltered_bonus, filtered_bonus
)}  # fmt: skip


def misled(case, fixture, fault):
    """Return a case as it is under a fault."""
    p, q = fault(fixture, case.p, case.q)
    return replace(case, p=tuple(p), q=tuple(q))


def reaches(fault, fixture):
    """Whether a fault changes a row of this fixture."""
    at = "q" if fault is unfiltered_q else "p"
    return getattr(fixture, at) != getattr(Point().fixture(1), at)


def sampled(rule, fixture):
    """Return the law of a round, continued by the target, and counts of what `verify` emits."""
    rule = RULES[rule]
    drafts = fixture.drafts(rule.draft)
    cases = [fixture.case(draft, None) for draft in drafts]
    rng = np.random.default_rng(0)
    picked = rng.choice(len(cases), ROWS, p=[float(w) for w in drafts.values()])
    length = fixture.gamma + 1
    counts = Counter()
    for seed, index in enumerate(picked):
        case = cases[index]
        out = verify(rule, case.p, case.q, case.tokens, case.parents, seed=seed).emitted
        counts[continued(out, fixture.target, length, rng)] += 1
    return target_law(fixture.target, length), counts


@pytest.mark.parametrize("rule", ["token", "block", "rrs_without"])
def test_samples_of_the_reference_pass_chi_square_and_raise_no_alarm(rule):
    tests, quiet = [], []
    for fixture in parameter_fixtures(RULES[rule].shape, False, RULES[rule].width):
        wanted, counts = sampled(rule, fixture)
        tests.append(chi_square(wanted, counts, 0.25, tests=len(QUICK)))
        quiet.append(not weigh(wanted, counts, 0.25).alarm(len(QUICK)))
    assert all(quiet)
    assert not sum(found.impossible for found in tests)
    assert min(holm([found.p_value for found in tests])) > ALARM
    assert min(found.power for found in tests) > 0.9


REACHED = [
    pytest.param(fault, fixture, id=f"{name}, {fixture.name}")
    for name, fault in FAULTS.items()
    for fixture in CHAINS.values()
    if reaches(fault, fixture)
]
UNREACHED = [
    pytest.param(fault, fixture, id=f"{name}, {fixture.name}")
    for name, fault in FAULTS.items()
    for fixture in CHAINS.values()
    if not reaches(fault, fixture)
]


@pytest.mark.parametrize(("fault", "fixture"), REACHED)
def test_samples_under_wrong_laws_are_refuted(fault, fixture):
    emitted = Counter()
    for draft, weight in fixture.drafts(with_replacement).items():
        case = misled(fixture.case(draft, None), fixture, fault)
        for out, mass in after(RULES["token"], case.root()).items():
            emitted[out] += mass * weight
    length = fixture.gamma + 1
    wanted = target_law(fixture.target, length)
    wrong = complete(emitted, fixture.target, length)
    gap = float(tv(wanted, wrong))
    rows = rows_needed(len(wanted), gap)
    drawn = np.random.default_rng(0).multinomial(rows, [float(w) for w in wrong.values()])
    counts = {text: int(count) for text, count in zip(wrong, drawn, strict=True)}
    found = chi_square(wanted, counts, gap, tests=round(LEVEL / ALARM))
    assert found.power > 0.999 or found.impossible
    assert found.p_value < ALARM or found.impossible
    assert weigh(wanted, counts, gap).alarm(1)


# Subjects, by their measured law.


def measured(subject, *chosen):
    """Return how far the measured law of a subject deviates, for each fixture, by claim."""
    loaded = load(subject)
    report = Report(loaded.spec, loaded.name, "", "quick", 0)
    session = Session(loaded, "token", report, lambda text: None)
    first = session.cases(chosen[0])[0][0]
    loaded.sample(first, 1, 0)
    session.dtype = first.dtype
    judge = Exact(session, Taped(session))
    found = []
    for fixture in chosen:
        readings = judge.read(fixture)
        assert not session.escapes
        assert all(reading.measured.complete for reading in readings)
        by_claim = {
            "support": [d for d in checks.support(readings) if not d.edge],
            "acceptance": [d for d in checks.acceptance(readings) if d.fails],
            "residual": [d for d in checks.residual(readings) if d.fails],
            "bonus": [d for d in checks.bonus(readings) if d.fails],
            "joint": [d for d in [checks.joint(fixture, readings, session.dtype)] if d.fails],
        }
        found.append({claim for claim, wrong in by_claim.items() if wrong})
    return found


HONEST = {"the rule, in torch": of_rule("token"), "batched": TWINS["batched_products"]}


@pytest.mark.parametrize("subject", HONEST.values(), ids=HONEST)
def test_an_honest_sampler_passes_everywhere(subject):
    assert measured(subject, *CHAINS.values()) == [set()] * len(CHAINS)


def test_transformers_passes_everywhere_but_for_its_edges():
    pytest.importorskip("transformers")
    assert measured("transformers", *CHAINS.values()) == [set()] * len(CHAINS)


class Misled:
    """The honest rule, given other laws than the gate hands over."""

    rules = ("token",)

    def __init__(self, fixture, fault):
        self.name, self.fixture, self.fault = fault.__name__, fixture, fault
        self.inner = of_rule("token")

    def sample(self, case, n, seed):
        case.arrays(1)
        return self.inner.sample(misled(case, self.fixture, self.fault), n, seed)


# What each fault spoils, wherever it reaches.
SPOILS = {
    "unfiltered_q": {"joint", "acceptance"},
    "unfiltered_p": {"joint", "support", "bonus"},
    "unfiltered_bonus": {"joint", "support", "bonus"},
    "filtered_bonus": {"joint", "support"},
}


@pytest.mark.parametrize(("fault", "fixture"), REACHED)
def test_a_sampler_under_wrong_laws_fails_where_they_are_wrong(fault, fixture):
    (failed,) = measured(Misled(fixture, fault), fixture)
    assert failed >= SPOILS[fault.__name__]


@pytest.mark.parametrize(("fault", "fixture"), UNREACHED)
def test_a_sampler_passes_where_nothing_is_filtered_that_it_forgets_to_filter(fault, fixture):
    assert measured(Misled(fixture, fault), fixture) == [set()]
