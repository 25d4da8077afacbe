"""The gate on a sampler that nobody here wrote: transformers' own `_speculative_sampling`."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from rich.text import Text

from specref.gate import Report, check, replay, view
from specref.gate.cases import Case
from specref.gate.checks import band
from tests import snapshot

WIDTH = 96
"""Columns of the picture."""

STEP = Fraction(1, 1 << 24)


@pytest.fixture(scope="module")
def report() -> Report:
    before = torch.get_rng_state()
    found = check("transformers")
    assert torch.equal(before, torch.get_rng_state()), "the gate moved torch's generator"
    return found


def test_the_verdict_is_fail_and_nothing_escaped_the_tape(report: Report) -> None:
    assert report.verdict == "fail"
    assert report.escapes == []


def test_only_edges_fail_and_only_in_support(report: Report) -> None:
    assert [(f.claim, f.severity) for f in report.failures] == [("support", "edge")] * 2


def test_every_claim_on_the_token_rule_has_the_measured_law(report: Report) -> None:
    depth = {f.claim: f.depth for f in report.findings if f.verdict != "not applicable"}
    assert (depth.pop("smoke"), depth.pop("seeds")) == ("", "")
    assert set(depth.values()) == {"measured law"}
    assert depth.keys() == {
        "parameters", "support", "acceptance", "residual", "bonus", "joint", "rounds",
        "metamorphic", "stream", "audit",
    }  # fmt: skip


def test_a_forbidden_token_comes_out_with_probability_2_to_the_minus_24(report: Report) -> None:
    finding = report.failures[0]
    assert finding.measured is not None
    assert finding.case is not None
    assert Fraction(finding.measured["(0, 1)"]) == STEP
    assert finding.nearest_fault is not None
    assert finding.nearest_fault["matches"][0] == "coin_inclusive"
    assert "generation/utils.py" in finding.where


def test_the_counterexample_is_the_smallest(report: Report) -> None:
    finding = report.failures[0]
    assert finding.case is not None
    case = Case.from_json(finding.case)
    assert (case.vocab, case.gamma) == (2, 1), "two tokens, one draft"
    assert case.p[0] == (0.0, 1.0)
    assert case.q[0] == (1.0, 0.0)


def test_an_empty_residual_raises(report: Report) -> None:
    finding = report.failures[1]
    assert finding.measured is not None
    assert "RuntimeError: probability tensor contains either `inf`, `nan`" in finding.message
    problem = next(mass for outcome, mass in finding.measured.items() if "RuntimeError" in outcome)
    assert Fraction(problem) == STEP


def test_all_laws_are_within_the_float32_band(report: Report) -> None:
    claims = ("acceptance", "residual", "bonus", "joint", "rounds")
    passed = [f for f in report.findings if f.verdict == "pass" and f.claim in claims]
    assert len(passed) == 5
    for finding in passed:
        assert finding.tv is not None
        assert finding.tv < 2.5e-7 < band(2, 2, "float32"), finding.claim


def test_two_runs_give_the_same_report(report: Report) -> None:
    assert check("transformers").to_json() == report.to_json()


def test_a_failure_is_replayed_from_its_file(report: Report, tmp_path) -> None:
    report.write(tmp_path)
    files = sorted(tmp_path.glob("0*.json"))
    assert len(files) == 2
    for file, finding in zip(files, report.failures, strict=True):
        again = replay(file)
        assert [f.claim for f in again.failures] == ["support"]
        assert again.failures[0].measured == finding.measured
    saved = json.loads((tmp_path / "report.json").read_text())
    assert saved["format"] == "specref-report/1"
    assert saved["verdict"] == "fail"


def test_the_picture_in_the_readme_is_of_its_first_failure(report: Report) -> None:
    first = report.failures[0]
    where = re.sub(r"\S*/site-packages", ".../site-packages", first.where)
    finding = replace(first, where=where, replay="")  # a test that replays it has set it
    lines = [Text("$ specref gate transformers"), Text(), *view.block(finding, WIDTH)]
    path = Path(__file__).parents[1] / "notebooks" / "figures" / "report.svg"
    snapshot.check_picture(path, lines, "the gate", WIDTH)
