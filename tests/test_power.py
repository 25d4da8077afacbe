"""The gate on the fault bank: each fault must fail and be named, each honest rule must pass."""

import pytest

from specref.draft import DRAFTS
from specref.faults import FAULTS
from specref.gate import check
from specref.rules import RULES
from specref.subjects.power import row
from specref.subjects.programs import NumpyChoices, of_fault, of_rule

# Seen only on the law of the drafts themselves, which `propose` hands over.
DRAFTERS = {"argmax_draft", "filtered_draft_raw_q", "unlikely_draft_dropped"}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_fails_and_is_named(name: str) -> None:
    report = check(of_fault(FAULTS[name]))
    assert report.verdict == "fail"
    assert report.escapes == []
    named = [f.nearest_fault["matches"] for f in report.failures if f.nearest_fault]
    assert any(name in matches for matches in named), named
    assert ({f.claim for f in report.failures} == {"proposal"}) == (name in DRAFTERS)


@pytest.mark.parametrize("declares", [True, False], ids=["declared", "undeclared"])
@pytest.mark.parametrize("name", [n for n in RULES if n != "greedy"])
def test_every_honest_rule_passes(name: str, declares: bool) -> None:
    report = check(of_rule(name, declares=declares))
    assert report.verdict == "pass", [f.message for f in report.failures]
    assert {f.depth for f in report.findings if f.claim == "joint"} == {"measured law"}


@pytest.mark.parametrize("drafts", DRAFTS)
@pytest.mark.parametrize("name", [n for n, rule in RULES.items() if rule.any_draft])
def test_rules_that_ignore_q_pass_on_any_draft(name: str, drafts: str) -> None:
    assert check(of_rule(name, drafts)).verdict == "pass"


def test_greedy_passes_on_its_domain_and_not_as_a_sampler() -> None:
    assert check(of_rule("greedy")).verdict == "pass"
    undeclared = check(of_rule("greedy", declares=False))
    assert "decoded_greedily" in undeclared.failures[0].nearest_fault["matches"]


def test_a_lossless_sampler_that_is_not_the_declared_rule_breaks_a_contract() -> None:
    honest = of_rule("match")
    honest.rules = ("token",)
    report = check(honest)
    assert {(f.claim, f.severity) for f in report.failures} == {
        ("acceptance", "contract"), ("residual", "contract")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("residual_is_target", "residual"),
        ("bonus_from_row_before", "bonus"),
        ("coin_shared", "acceptance"),
        ("siblings_share_p", "acceptance"),
        ("argmax_draft", "proposal"),
    ],
)
def test_samples_refute_what_the_tape_cannot_see(name: str, claim: str) -> None:
    report = check(of_fault(FAULTS[name], NumpyChoices))
    failure = next(f for f in report.failures if f.claim == claim)
    assert failure.depth == "samples"
    assert report.escapes


def test_samples_certify_an_honest_black_box() -> None:
    report = check(of_rule("token", choices=NumpyChoices))
    assert report.verdict == "pass"
    joint = next(f for f in report.findings if f.claim == "joint")
    assert joint.depth == "samples"
    assert joint.tv is not None
    assert joint.tv <= 0.05


def test_a_row_of_the_power_table() -> None:
    found = row("coin_inclusive")
    assert found.right
    assert found.measured == "support (edge)"
    assert found.samples == "pass", "2^-24 is beyond any number of samples"
