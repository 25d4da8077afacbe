"""Kernels compile without a device, and keep what they work on in registers."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="module")
def found():
    if find_spec("triton") is None:
        pytest.skip("triton is not installed; pip install specref[gpu]")
    run = subprocess.run(
        [sys.executable, "-m", "tests.triton_compiled"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    table = json.loads(run.stdout)
    print(f"{'kernel':40} registers  stack  spills")
    for name, (registers, stack, spills) in table.items():
        print(f"{name:40} {registers:9} {stack:6} {spills:7}")
    return table


def test_kernels_do_not_spill(found):
    assert {name for name, (_, _, spills) in found.items() if spills} == {"control"}


def test_every_target_is_compiled(found):
    assert {name.split(":")[0] for name in found} == {"sm_80", "sm_90", "sm_100", "control"}


def test_the_reading_shows_spills(found):
    assert found["control"][2] > 0
    assert found["control"][0] <= 32
