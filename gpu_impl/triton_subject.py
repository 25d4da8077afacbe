"""The Triton backend as the gate is shown it: on a CUDA device, or else in Triton's interpreter.

    pip install --no-deps triton==3.7.1

The interpreter is chosen when a kernel is decorated, so importing this module without a device sets
TRITON_INTERPRET=1, in this process alone. It needs tens of milliseconds for a row, and hours for a
whole run of the gate.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton  # noqa: F401  # its absence is told now, and by name

from gpu_impl.subject import Chains, Trees

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

chains, trees = Chains("triton", device=DEVICE), Trees("triton", device=DEVICE)
for _subject in (chains, trees):
    _subject.time_limit = 3600.0
