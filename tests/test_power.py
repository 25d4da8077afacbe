"""The gate on the fault bank: each fault must fail and be named, each honest rule must pass."""

from dataclasses import replace
from itertools import product

import pytest

from specref.draft import DRAFTS
from specref.faults import FAULTS, ROUND_FAULTS
from specref.gate import batches, cases, check, exact, relations, samples, seeding
from specref.gate.errors import UsageError
from specref.gate.loading import load
from specref.gate.session import PROFILES
from specref.rules import RULES
from specref.subjects.power import Row, Seen, measurable, row, rows
from specref.subjects.programs import WAYS, HashChoices, NumpyChoices, of_fault, of_rule

HONEST = [name for name, rule in RULES.items() if not rule.off_path]

ONE_FOR_EACH_DRAFTER = {RULES[n].draft: n for n in reversed(HONEST) if RULES[n].lossless}.values()

# Seen only on the law of the drafts themselves, which `propose` hands over.
DRAFTERS = {
    "argmax_draft",
    "draft_ids_unmapped",
    "draft_rounded",
    "filtered_draft_raw_q",
    "unlikely_draft_dropped",
}

# Seen only where a draw takes a single value, a mass vanishes, or probes may miss as much.
FINE = {
    "draft_rounded",
    "residual_floored",
    "underflow_accepted",
    "coin_inclusive",
    "coin_inclusive_one_hot",
    "coin_inclusive_target_only",
    "uniform_for_empty_residual",
    "scan_falls_to_last_token",
}

# Faults with a claim that fails: one for each claim on rounds, and one of trees.
TYPICAL = {
    "residual_is_target": "residual",
    "first_draft_unverified": "acceptance",
    "bonus_from_row_before": "bonus",
    "argmax_draft": "proposal",
    "siblings_share_p": "acceptance",
}

TELLING = "small"
"""The fixture on which most faults show."""

FEW = ("grid V=2", "pair", "sure", "turn, one sibling", TELLING, "zeros")


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    """Audit, ask and certify little: what fails must fail all the same."""
    smaller = replace(PROFILES["quick"], audit_rows=1 << 10, audit_calls=8, probes=64, tv=0.2)
    monkeypatch.setitem(PROFILES, "quick", smaller)
    for module in (exact, samples):  # tests/test_grid.py looks at these
        monkeypatch.setattr(module, "parameter_fixtures", lambda *_: [])
    for module in (relations, batches, seeding):  # they have tests of their own
        monkeypatch.setattr(module, "judge", lambda *_: [])


def taking(monkeypatch, *names):
    """Take fixtures of some names only."""

    def fixtures(shape, thorough, width):
        found = cases.fixtures(shape, thorough, width)
        return [f for f in found if f.name.split(" 1/2")[0] in names]

    monkeypatch.setattr(exact, "fixtures", fixtures)


@pytest.fixture
def few(monkeypatch):
    taking(monkeypatch, *FEW)


@pytest.fixture
def one(monkeypatch):
    taking(monkeypatch, TELLING)


@pytest.fixture
def hasty(one, monkeypatch):
    """Ask too little for the law of two rounds, which costs most."""
    monkeypatch.setitem(PROFILES, "quick", replace(PROFILES["quick"], runs=2_000))


@pytest.fixture
def law_alone(monkeypatch):
    """Ask for the law of one round only: the claims around it cost as much again."""
    monkeypatch.setattr(exact.Exact, "rounds", lambda *_: None)
    monkeypatch.setattr(exact.Exact, "stream", lambda *_: None)


@pytest.mark.usefixtures("law_alone")
@pytest.mark.parametrize("name", ROUND_FAULTS)
def test_every_fault_fails_and_is_named(name, monkeypatch):
    taking(monkeypatch, TELLING)
    report = check(of_fault(FAULTS[name]))
    if name not in named(report):  # this fixture hides it; one of these does not
        taking(monkeypatch, *FEW)
        report = check(of_fault(FAULTS[name]))
    assert report.verdict == "fail"
    assert report.escapes == []
    assert name in named(report)
    assert ({f.claim for f in report.failures} == {"proposal"}) == (name in DRAFTERS)


def named(report):
    """Return the faults that have the measured law of some failure."""
    found = [f.nearest_fault["matches"] for f in report.failures if f.nearest_fault]
    return {name for matches in found for name in matches}


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("name", ["residual_is_target", "siblings_share_p"])
def test_a_fault_fails_in_the_law_of_two_rounds_too(name):
    failed = {f.claim: f for f in check(of_fault(FAULTS[name])).failures}
    assert failed.keys() >= {"joint", "rounds"}
    assert name in failed["joint"].nearest_fault["matches"]


@pytest.mark.parametrize("name", [n for n in HONEST if n != "greedy"])
def test_every_honest_rule_passes(name, monkeypatch):
    if name not in ("token", "rrs_without"):  # which pass on every fixture
        taking(monkeypatch, *FEW[2:], "mixed")
    report = check(of_rule(name))
    passes(report)
    (joint,) = (f for f in report.findings if f.claim == "joint")
    lossy = f"{name} is lossy by TV 0."
    assert (lossy in joint.message) == (not RULES[name].lossless)


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("name", ONE_FOR_EACH_DRAFTER)
def test_honest_rules_pass_as_lossless(name):
    passes(check(of_rule(name, declares=False)))


def passes(report):
    assert report.verdict == "pass", [f.message for f in report.failures]
    assert {f.depth for f in report.findings if f.claim == "joint"} == {"measured law"}


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize(
    ("name", "drafts"),
    [
        *product((n for n, rule in RULES.items() if rule.any_draft), list(DRAFTS)[:3]),
        *product(["target_only"], list(DRAFTS)[3:]),  # on chains, these draw from q
    ],
)
def test_rules_that_ignore_q_pass_on_any_draft(name, drafts):
    assert check(of_rule(name, drafts)).verdict == "pass"


def test_greedy_passes_on_its_domain_and_not_as_a_sampler():
    assert check(of_rule("greedy")).verdict == "pass"
    undeclared = check(of_rule("greedy", declares=False))
    assert "decoded_greedily" in undeclared.failures[0].nearest_fault["matches"]


@pytest.mark.usefixtures("few")
def test_a_lossless_sampler_that_is_not_the_declared_rule_breaks_a_contract():
    honest = of_rule("match")
    honest.rules = ("token",)
    report = check(honest)
    assert {(f.claim, f.severity) for f in report.failures} == {
        ("acceptance", "contract"), ("residual", "contract")
    }  # fmt: skip


@pytest.mark.usefixtures("few")
def test_token_verification_that_is_called_block_verification_is_named():
    """As in a port that had the acceptance and the residual of the one, and the name of the other.

    See vllm-project/vllm-ascend#7807.
    """
    report = check(held_to("token", "block"))
    assert {f.severity for f in report.failures} == {"contract"}
    assert "acceptance" in {f.claim for f in report.failures}


@pytest.mark.usefixtures("few")
def test_a_bonus_that_is_left_out_is_no_fault_of_the_law():
    def verify(root, choose):
        out = RULES["token"].verify(root, choose)
        return out[:-1] if len(out) > 2 else out

    honest = replace(of_rule("token", declares=False), verify=verify)
    assert check(honest).verdict == "pass"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", [name for name in HONEST if not RULES[name].lossless])
def test_a_lossy_rule_that_is_not_declared_fails_and_is_named(name):
    undeclared = check(of_rule(name, declares=False))
    named = next(f.nearest_fault for f in undeclared.failures if f.nearest_fault)
    assert f"rule {name}" in named["matches"]
    assert "which is lossy" in named["computed"]


@pytest.mark.usefixtures("few")
def test_a_sampler_may_be_better_than_the_lossy_rule_it_declares():
    report = check(held_to("token", "lenient"))
    failed = {f.claim: f for f in report.failures}
    assert {f.severity for f in report.failures} == {"contract"}
    assert failed["joint"].message.endswith("; it is lossless, but not this rule")
    assert "the law is not that of lenient" in failed["rounds"].message


@pytest.mark.usefixtures("few")
def test_another_lossy_rule_is_told_apart():
    report = check(held_to("lenient_scaled", "lenient"))
    assert report.failures[0].claim == "residual"
    assert report.failures[0].nearest_fault["matches"] == ["rule lenient_scaled"]


def held_to(name, rule):
    """A rule as a sampler that declares another."""
    return replace(of_rule(name), rules=(rule,))


def test_samples_hold_a_lossy_rule_to_its_own_law():
    honest = check(of_rule("lenient", choices=HashChoices))
    assert honest.verdict == "pass"
    undeclared = check(of_rule("lenient", declares=False, choices=HashChoices))
    failure = next(f for f in undeclared.failures if f.claim == "joint")
    assert failure.nearest_fault["resembles"] == "rule lenient"
    wrong = check(of_fault(FAULTS["lenience_inverted"], HashChoices))
    assert {f.depth for f in wrong.failures} == {"samples"}


@pytest.mark.usefixtures("one")
def test_drafts_go_with_the_rule_unless_a_sampler_names_its_own():
    class Both:
        rules = "token", "one_hot"

        def sample(self, case, n, seed):
            return of_rule(case.rule).sample(case, n, seed)

    report = check(Both())
    assert report.verdict == "pass"
    assert report.drafts == "with_replacement, likeliest"
    Both.drafts = "likeliest"
    assert {f.rule for f in check(Both()).failures} == {"token"}


def test_a_rule_that_needs_more_than_a_case_holds_is_refused_with_the_cure():
    with pytest.raises(UsageError, match=r"calls the models behind tokens .*; leave the rule out"):
        of_rule("hierarchical")
    with pytest.raises(UsageError, match="hierarchical calls the models"):
        check(of_rule("token"), rules=["hierarchical"])


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "NumPy") for name in TYPICAL),
        ("residual_is_target", "exponential race"),
        ("siblings_share_p", "Gumbel race"),
        ("residual_is_target", "Python"),
    ],
)
def test_typical_faults_are_measured_and_named_in_every_way(name, way):
    found = row(name, [way])
    assert found.told(way).startswith("measured, ")
    assert TYPICAL[name] in found.fails
    assert found.named == "yes"
    assert found.right


@pytest.mark.parametrize("name", TYPICAL)
def test_samples_refute_typical_faults(name):
    report = check(of_fault(FAULTS[name], HashChoices))
    failure = next(f for f in report.failures if f.claim == TYPICAL[name])
    assert failure.depth == "samples"
    assert report.escapes


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize(
    ("name", "ways"),
    [("token", list(WAYS)), ("rrs_without", ["exponential race", "Gumbel race", "hash"])],
)
def test_honest_rules_pass_in_every_way(name, ways):
    found = row(name, ways)
    assert found.right, found.seen
    assert {way for way in ways if not found.seen[way].measured} == {"hash"}
    assert found.named == found.fails == ""


def test_samples_certify_an_honest_black_box():
    report = check(of_rule("token", choices=HashChoices))
    joint = next(f for f in report.findings if f.claim == "joint")
    assert joint.depth == "samples"
    assert joint.tv is not None
    assert joint.tv <= 0.2


@pytest.mark.usefixtures("one")
def test_samples_cannot_see_what_a_single_value_of_a_draw_leads_to():
    found = row("coin_inclusive", ["torch", "NumPy", "hash"])
    told = [found.told(way).split(",")[0] for way in found.seen]
    assert told == ["measured", "measured", "missed"], "the learner asks at the ends of a draw"
    assert (found.fails, found.named, found.right) == ("support (edge)", "yes", True)


def test_what_only_the_tape_must_see_is_known():
    assert {n for n, fault in ROUND_FAULTS.items() if not measurable(fault, "NumPy")} == FINE
    assert all(measurable(fault, "Gumbel race") for fault in ROUND_FAULTS.values())
    assert not any(measurable(fault, "hash") for fault in ROUND_FAULTS.values())


def test_a_row_is_right_only_if_every_law_that_can_be_measured_tells():
    fails = Seen("fail", "joint (law)", True, True, 5)
    missed = Seen("pass", "", True, False, 5)
    unnamed = replace(fails, named=False)
    counted = replace(unnamed, measured=False)
    doubted = replace(missed, verdict="inconclusive")

    def fault(**seen):
        return Row("coin_shared", "token", False, seen)

    def rule(**seen):
        return Row("token", "token", True, seen)

    assert fault(torch=fails, hash=counted).right
    assert fault(torch=fails, hash=doubted).right
    assert fault(torch=fails, hash=counted).named == "yes"
    for seen in (missed, unnamed, counted, doubted):
        assert not fault(torch=seen).right
        assert not fault(torch=fails, NumPy=seen).right
    assert fault(torch=fails, NumPy=unnamed).named == "NO"
    assert fault(hash=counted).named == ""
    assert rule(torch=missed).right
    assert not rule(torch=missed, hash=fails).right
    assert not rule(torch=doubted).right
    told = [fault(torch=s).told("torch") for s in (fails, missed, counted, doubted)]
    assert told == ["measured, 5", "missed, 5", "samples, 5", "inconclusive, 5"]
    assert [rule(torch=s).told("torch") for s in (missed, fails)] == ["measured, 5", "refuted, 5"]


def test_rows_come_in_order_with_every_way():
    names, done = ["first_draft_unverified_greedy", "greedy"], []
    found = list(rows(names, ["torch", "hash"], 2, done.append))
    assert [r.name for r in found] == done == names
    assert [list(r.seen) for r in found] == [["torch", "hash"]] * 2
    assert all(r.right for r in found)


def test_samplers_are_known_by_name():
    place = "specref.subjects.programs:"
    assert load(f"{place}faults.coin_shared").rules == ("token",)
    assert load(f"{place}rules.rrs_with").shape == "tree"
    from specref.subjects.programs import faults, rules

    assert faults.NumPy.coin_shared.choices is NumpyChoices
    assert rules.exponential_race.token.choices is WAYS["exponential race"]
    assert "token" in dir(rules)
    assert "coin_shared" in dir(faults.hash)
    with pytest.raises(UsageError):
        load(f"{place}faults.token")
