"""Streams: a law can be right as a function of its draws, and the draws wrong.

One generator for all rows, a state repeated between rounds, requests or operations, a constant
seed: each leaves the law of a single call perfect. So the generator and its state are noted at each
draw, over several calls with different seeds. Two draws from the same state are the same draw.
"""

import torch

from specref.gate.audit import Recorder
from specref.gate.cases import Case
from specref.gate.seeds import ambient, seed_of, states_kept
from specref.gate.subject import Subject


def repeated_states(subject: Subject, case: Case, seed: int, calls: int = 6, rows: int = 4) -> str:
    """Return how the subject uses a generator's state twice, or "" if it does not.

    Args:
        subject: the sampler.
        case: what it is called on.
        seed: of the first call; each call has another.
        calls: how many calls.
        rows: rows of each.
    """
    seen: dict[bytes, tuple[int, int]] = {}
    values: dict[tuple[int, ...], tuple[int, int]] = {}
    with states_kept():
        ambient(seed)
        for call in range(calls):
            recorder = Recorder(states=True)
            with torch.no_grad(), recorder:
                subject.sample(case, rows, seed_of(seed, call))
            for draw, state in enumerate(recorder.states):
                first = seen.setdefault(state, (call, draw))
                if first != (call, draw):
                    return _says(first, (call, draw), "starts from the generator state of")
            for draw, numbers in enumerate(recorder.uniforms):
                for at in range(len(numbers) - 1):
                    pair = (numbers[at], numbers[at + 1])
                    first = values.setdefault(pair, (call, draw))
                    if first != (call, draw):
                        return _says(first, (call, draw), "repeats the numbers of")
    return ""


def _says(first: tuple[int, int], second: tuple[int, int], how: str) -> str:
    if first[0] == second[0]:
        return f"draw {second[1] + 1} of a call {how} draw {first[1] + 1} of the same call"
    return (
        f"draw {second[1] + 1} of call {second[0] + 1} {how} draw {first[1] + 1} of call "
        f"{first[0] + 1}, although the calls were given different seeds"
    )
