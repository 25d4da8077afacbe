"""The Triton backend in Triton's interpreter, which shows what kernels decide, and no races."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest


def rounds(*checks):
    """Run checks in a process of their own, all short ones if none are named."""
    if find_spec("triton") is None:
        pytest.skip("triton is not installed; pip install specref[gpu]")
    run = subprocess.run(
        [sys.executable, "-m", "tests.triton_rounds", *checks],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def found():
    """Run every short check."""
    return rounds()


def test_decisions_are_right(found, record_property):
    seen = found["judged"]
    record_property("cases", seen["decisions"])
    assert seen["wrong"] == []
    assert seen["decisions"] > 3_000
    assert seen["band"] < 0.02 * seen["decisions"]


def test_outputs_are_those_of_the_torch_backend(found):
    assert found["judged"]["differ"] == 0


def test_lossy_rules_are_those_of_the_torch_backend(found):
    assert found["lossy"] == 0


def test_rows_at_once_eager_or_lazy_and_memory_change_no_bit(found):
    assert found["invariant"] == []


def test_requests_come_out_as_they_do_alone(found):
    assert found["alone"] == []


def test_nothing_is_written_outside_and_bad_forests_are_flagged(found):
    assert found["guards"] == []


def test_draws_are_those_of_the_reference(found):
    assert found["draws"] == 0


def test_a_batch_may_be_empty(found):
    assert found["empty"] == [[0, 1], [0]]


@pytest.mark.skipif(
    os.environ.get("GPU_REPLAY") != "full", reason="GPU_REPLAY=full asks for it: it takes minutes"
)
def test_ten_thousand_decisions_are_right(record_property):
    (seen,) = rounds("ten thousand").values()
    record_property("cases", seen["decisions"])
    assert (seen["wrong"], seen["differ"]) == ([], 0)
    assert seen["decisions"] > 10_000
    assert seen["band"] < 0.02 * seen["decisions"]
