import math
import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import gpu_impl.torch_backend as backend
from gpu_impl import DraftLogits, Lenience, OneHot, Seeds, Status, Thresholds, Workspace, verify
from gpu_impl.call import NEED_Q, RULES
from gpu_impl.forest import Forest
from gpu_impl.parameters import Parameters
from gpu_impl.torch_backend import library, native, native_round, rows, walk
from gpu_impl.torch_backend.rows import Picked
from gpu_impl.torch_backend.sides import side_of
from specref.logits import PRESETS, filtered
from specref.logits import Parameters as Exact
from tests.gpu_cases import batches

needs_native = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
UNIT = 2.0**-24  # half a unit in the last place of a float32 near 1


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pick(x, probs=False, place=None, **parameters):
    side = side_of(x, Parameters(**parameters), len(x), probs=probs)
    every = torch.arange(len(x))
    return Picked(replace(side, place=place), every, every, every)


def noise(n, width, seed=0, spread=3.0):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed)) * spread


def scores(picked, known):
    """Exact exponents of the kept tokens, -inf off them: float64 [n, width]."""
    x = rows._read(picked)
    at = torch.arange(x.shape[1])
    cut, low, high, top, scale = (
        column[:, None] for column in (known.cut, known.low, known.high, known.top, known.scale)
    )
    kept = (x > cut) | ((x == cut) & (at >= low) & (at <= high))
    exponents = (x.double() - top.double()) * scale.double()
    return torch.where(kept, exponents, -torch.inf).numpy()


def law_and_error(picked, known):
    """Laws in float64, and bounds of what float32 may be off by.

    Of a mass: the difference to the top and its product with the scale are rounded (2 |t| units),
    exp is within a unit in the last place (2 units), as are, in `mass`, the factor, the product
    and the difference (3 units); of a sum, at most 6 additions are in float32.
    """
    t = scores(picked, known)
    weights = np.exp(t)
    units = np.where(weights > 0, 2 * np.abs(np.where(weights > 0, t, 0)) + 2 + 3 + 6, 0) * UNIT
    total = weights.sum(1, keepdims=True)
    off = (weights * units).sum(1, keepdims=True) / total
    return weights / total, weights / total * (units + off), total[:, 0], off[:, 0]


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [1, 5, 4095, 4097, 70000])
def test_totals_and_masses(dtype, width):
    """Rows lie apart, with NaN between them: nothing outside of a row is read as a part of it."""
    n = 3

    def apart(seed):
        wide = torch.full((n, width + 7), torch.nan, dtype=dtype)
        wide[:, 3 : width + 3] = noise(n, width, seed).to(dtype)
        return wide[:, 3 : width + 3]

    p, q = pick(apart(1), temperature=0.7), pick(apart(2))
    p_laws, q_laws = native.laws(p), native.laws(q)
    assert not (p_laws.bad | q_laws.bad).any()
    assert torch.equal(p_laws.best.long(), p.side.x.float().argmax(1))
    p_law, p_error, total, off = law_and_error(p, p_laws)
    q_law, q_error, _, _ = law_and_error(q, q_laws)
    assert (np.abs(p_laws.total.numpy() / total - 1) <= off).all()
    a, c = torch.tensor([1.0, 0.5, 1.0]).double(), torch.tensor([1.0, 1.0, 0.0]).double()
    out = torch.tensor([[-1, -1], [0, -1], [width - 1, 0]], dtype=torch.int32)
    by = a.numpy()[:, None], c.numpy()[:, None]
    wanted = np.maximum(by[0] * p_law - by[1] * q_law, 0)
    error = by[0] * p_error + by[1] * q_error
    wanted[1, 0] = wanted[2, width - 1] = wanted[2, 0] = 0
    found = native.mass(p, p_laws, q, q_laws, a, c, out).numpy()
    assert (np.abs(found - wanted.sum(1)) <= error.sum(1)).all()
    for u in (0.0, 0.3, 0.75, 1 - 2.0**-53):
        coins = torch.full((n,), u, dtype=torch.float64)
        tokens, again = native.draw(p, p_laws, q, q_laws, a, c, out, coins)
        assert (again.numpy() == found).all()
        for i, token in enumerate(tokens.tolist()):
            band = error[i].sum()
            if token < 0:
                assert found[i] == 0
                continue
            upto = wanted[i].cumsum()
            assert upto[token] - wanted[i, token] <= u * found[i] + band
            assert upto[token] >= u * found[i] - band
            assert wanted[i, token] > 0 or error[i, token] > 0


@needs_native
def test_equal_rows_leave_nothing():
    x = noise(2, 5001, spread=2).bfloat16()
    apart = torch.full((2, 6000), torch.nan)
    apart[:, 1:5002] = x.float()
    for asked in ({}, {"temperature": 0.6, "top_k": 300, "top_p": 0.9}, {"top_p": 0.9}):
        p, q = pick(x, **asked), pick(apart[:, 1:5002], **asked)
        one, known = torch.ones(2).double(), (native.laws(p), native.laws(q))
        assert all(torch.equal(a, b) for a, b in zip(*known, strict=True))
        token, found = native.draw(p, known[0], q, known[1], one, one, None, one / 2)
        assert token.tolist() == [-1, -1]
        assert found.tolist() == [0, 0]


@needs_native
def test_exponentials():
    x = torch.zeros(64, 2)
    x[:, 1] = -torch.linspace(0, 0.7, 64)
    p = pick(x)
    known = native.laws(p)
    _, _, total, off = law_and_error(p, known)
    assert (np.abs(known.total.numpy() / total - 1) <= off).all()
    assert known.total[0] == 2


@needs_native
def test_draws_at_the_edges_of_tokens_and_blocks():
    """Masses are powers of two, so a draw at the edge of two tokens is known exactly."""
    one, edges = torch.ones(6).double(), [0, 1, 4095, 4096, 4097, 8191]
    p = pick(torch.zeros(6, 8192))
    known, u = native.laws(p), torch.tensor(edges).double() / 8192
    assert native.draw(p, known, None, None, one, one, None, u)[0].tolist() == edges
    below = native.draw(p, known, None, None, one, one, None, (u - 2.0**-53).clamp(min=0))[0]
    assert below.tolist() == [0, 0, 4094, 4095, 4096, 8190]


@needs_native
@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"preset": "vllm", "top_k": 5000}, (0, 4999)),
        ({"preset": "vllm", "top_p": 0.25}, (0, 2047)),
        ({"preset": "vllm_sort", "top_p": 0.25}, (6144, 8191)),
        ({"preset": "flashinfer", "top_k": 5000}, (0, 8191)),
        ({"temperature": 0.0}, (0, 0)),
    ],
)
def test_ties_that_stay(asked, kept):
    p, one = pick(torch.zeros(1, 8192), **asked), torch.ones(1).double()
    known = native.laws(p)
    drawn = [
        native.draw(p, known, None, None, one, one, None, u)[0].item()
        for u in (0 * one, one - 2.0**-53)
    ]
    assert known.total.item() == kept[1] - kept[0] + 1
    assert drawn == list(kept)


@needs_native
@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("nucleus", [1e-4, 0.3, 0.9, 0.9999])
def test_a_nucleus_is_the_shortest_beginning(spread, nucleus):
    p = pick(noise(2, 40000, 5, spread), top_p=nucleus)
    known = native.laws(p)
    assert torch.equal(known.top, p.side.x.amax(1))
    everything = known._replace(
        cut=torch.full((2,), -torch.inf), low=known.low * 0, high=known.high * 0 + 40000
    )
    law, error, _, _ = law_and_error(p, everything)
    kept = scores(p, known) > -np.inf
    wanted = float(np.float32(nucleus))
    for row in range(2):
        inside = np.sort(law[row][kept[row]])
        assert inside[0] >= law[row][~kept[row]].max()
        band = error[row].sum()
        assert inside.sum() >= wanted - band
        assert inside[1:].sum() < wanted + band


ASKED = [
    {"temperature": 0.5, "top_k": 3, "top_p": 0.75},
    {"temperature": 2.0, "top_p": 0.5},
    {"top_k": 4, "min_p": 0.25},
    {"temperature": 0.75, "top_p": 0.9375, "min_p": 0.0625},
    {"top_k": 1},
    {"temperature": 0.0, "top_k": 3},
]
ROWS = [
    [2, 2, 2, 2, 0, 0, 1, 1],
    [0, 3, 1, 3, 1, 3, -1, 3],
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0.5, -1, -np.inf, 4, 4.25, -np.inf, 3.5, 3.5],
]


@needs_native
@pytest.mark.parametrize("preset", PRESETS)
def test_what_stays_is_what_the_reference_keeps(preset):
    x = torch.tensor(ROWS, dtype=torch.float32)
    for asked in ASKED:
        if not set(asked) <= set(PRESETS[preset].names):
            continue
        p = pick(x, preset=preset, **asked)
        kept = scores(p, native.laws(p)) > -np.inf
        exact = Exact(**{name: Fraction(value) if name != "top_k" else value
                         for name, value in asked.items()})  # fmt: skip
        for row, found in zip(ROWS, kept, strict=True):
            assert np.flatnonzero(found).tolist() == sorted(filtered(row, exact, preset).scores)


@needs_native
@pytest.mark.parametrize("asked", [{}, {"top_k": 40}, {"top_p": 0.8}, {"top_k": 9, "top_p": 0.7}])
def test_nothing_else_changes_a_row(asked):
    """Threads, and how many other rows there are in what order, leave every bit as it is."""
    few, many = 3, 9
    x, y = noise(many, 100_003, 1), noise(many, 100_003, 2)
    p, q = pick(x, **asked), pick(y, **asked)
    a = torch.linspace(0.5, 1, many).double()
    u = torch.linspace(0, 0.99, many).double()

    def results(order):
        known = native.laws(p.at(order)), native.laws(q.at(order))
        drawn = native.draw(p.at(order), known[0], q.at(order), known[1], a[order], a[order], None,
                            u[order])  # fmt: skip
        return [*known[0], *known[1], *drawn]

    alone = [results(torch.tensor([row])) for row in range(many)]
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for order in ([2, 0, 1], [*range(few, many), 0, 0, 2]):
            found = results(torch.tensor(order))
            for column, values in enumerate(found):
                wanted = torch.cat([alone[row][column] for row in order])
                assert torch.equal(values, wanted)


@needs_native
def test_rows_that_are_no_laws():
    nan, inf = torch.nan, torch.inf
    x = torch.tensor([[1.0, nan, 2.0, inf], [-inf] * 4, [nan] * 4, [3.0, 5.0, 5.0, -inf]])
    known = native.laws(pick(x))
    assert known.bad.tolist() == [True, True, True, False]
    assert known.best.tolist() == [2, -1, -1, 1]
    masked = torch.tensor([[0b0101], [0b1111], [0b0000], [0b1101]], dtype=torch.int32)
    bias = torch.zeros(4, 4)
    bias[3, 0] = 4.0
    known = native.laws(pick(x, allowed=masked, bias=bias))
    assert known.bad.tolist() == [False, True, True, False]
    assert known.best.tolist() == [2, -1, -1, 0]
    assert known.top.tolist()[3] == 7
    one = torch.ones(4).double()
    token, found = native.draw(pick(x), known._replace(bad=known.bad | True), None, None, one, one,
                               None, one / 2)  # fmt: skip
    assert token.tolist() == [-1] * 4
    assert found.tolist() == [0] * 4


@needs_native
def test_probabilities():
    x = torch.tensor([[0.5, 0.25, 0.25], [0.5, -0.25, 1.0], [0.0, 0.0, 0.0], [0.0, torch.nan, 1.0]])
    known = native.laws(pick(x, probs=True))
    assert known.bad.tolist() == [False, True, True, True]
    assert known.total.tolist()[0] == 1
    # Masses and factors are powers of two here, so nothing is rounded.
    even = pick(torch.zeros(1, 4))
    place = torch.tensor([1, -1, 0, 2], dtype=torch.int32)
    q = pick(x[:1], probs=True, place=place)
    one = torch.ones(1).double()
    arguments = even, native.laws(even), q, native.laws(q), one, one
    assert native.mass(*arguments).tolist() == [0.25]
    assert native.draw(*arguments, None, one / 2)[0].tolist() == [1]


@needs_native
def test_parameters_that_are_none():
    x = torch.zeros(7, 4)
    column = torch.tensor
    known = native.laws(
        pick(
            x,
            temperature=column([1.0, torch.nan, -1.0, 0.001, 0.01, 1.0, 1.0]),
            top_k=column([0, 0, 0, 0, 9, -1, 0]),
            top_p=column([1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 0.0]),
        )
    )
    assert known.lawless.tolist() == [False, True, True, True, False, True, True]
    assert not known.bad.any()


@needs_native
def test_results_stay_inside_of_their_tensors(monkeypatch):
    made, empty = [], torch.empty

    def guarded(n, dtype):
        whole = torch.full((n + 2,), 77, dtype=dtype)
        made.append((whole, whole.clone()))
        return whole[1:-1]

    monkeypatch.setattr(torch, "empty", guarded)
    p = pick(noise(3, 300), top_k=5)
    known = native.laws(p)
    one = torch.ones(3).double()
    native.draw(p, known, p, known, one, one / 2, None, one / 2)
    monkeypatch.setattr(torch, "empty", empty)
    assert len(made) == 11
    for whole, before in made:
        assert whole[[0, -1]].equal(before[[0, -1]])


@needs_native
def test_rows_outside_are_refused():
    p = pick(noise(3, 20))
    with pytest.raises(IndexError, match="outside"):
        native.laws(replace(p, rows=p.rows + 1))
    with pytest.raises(IndexError, match="outside"):
        native.laws(replace(p, requests=p.requests - 1))


# Whole rounds.


def parts(out):
    """What a round returned, with numbers in place of NaN."""
    found = {**out._asdict(), **(out.trace._asdict() if out.trace else {})}
    del found["trace"]
    return {name: None if x is None else x.double().nan_to_num(nan=7.5) for name, x in found.items()
            }  # fmt: skip


def differences(one, two):
    """Names of what two rounds differ in."""
    one, two = parts(one), parts(two)
    assert one.keys() == two.keys()
    return [
        name
        for name, x in one.items()
        if (x is None) != (two[name] is None) or (x is not None and not torch.equal(x, two[name]))
    ]


def exponential(x):
    return math.exp(x) if x < 709 else math.inf if x == x else x


def logarithm(x):
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


@pytest.fixture
def both(monkeypatch):
    """Run each round by the walk, too, over native rows; return the list of what differed.

    The walk is given exponentials and logarithms of the C library, which torch may round otherwise.
    """
    found, exp = [], torch.Tensor.exp

    def exact(x):
        return exp(x) if x.dtype != torch.float64 else x.clone().apply_(exponential)

    def compared(batch):
        out = native_round.verify(batch)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "exp", exact)
            patch.setattr(torch.Tensor, "log", lambda x: x.clone().apply_(logarithm))
            wanted = walk.verify(batch)
        found.append((batch.rule, differences(out, wanted)))
        return out

    monkeypatch.setattr(backend, "verify", compared)
    return found


@needs_native
@pytest.mark.parametrize("faults", [False, True])
def test_a_round_is_bit_by_bit_that_of_the_walk(both, faults):
    lossy = {"token": Lenience(0.6), "one_hot": Thresholds(0.7, 0.8)}
    lossy["target_only"] = lossy["one_hot"]
    for at, made in enumerate(batches(21 + faults, len(PRESETS) * len(RULES), 5, faults=faults)):
        made.verify(lazy=at % 3 == 0, lossy=lossy.get(made.rule) if at % 2 else None,
                    trace=at % 5 > 0, logprobs=at % 7 > 0)  # fmt: skip
    assert len(both) == len(PRESETS) * len(RULES)
    assert [one for one in both if one[1]] == []


def large(rule, requests, width, seed, **asked):
    """Arguments of a call over rows of several chunks: chains, or trees of as many nodes."""
    p = noise(4 * requests, width, seed)
    q = p + noise(4 * requests, width, seed + 1, 0.7)
    tokens = torch.multinomial((q / 0.9).softmax(1), 1)[:, 0]
    needs = rule in NEED_Q
    parents = torch.tensor([-1, 0, 0, 1] * requests)
    return {
        "target_logits": p, "tokens": torch.cat([tokens[-1:], tokens[:-1]]),
        "cu_nodes": torch.arange(requests + 1) * 4,
        "draft": DraftLogits(q.half(), Parameters(0.9)) if needs else OneHot(),
        "draws": Seeds(torch.arange(requests) - 2**62, torch.arange(requests) + 2**40),
        "parents": None if rule in ("token", "one_hot", "block") else parents,
        "rule": rule, "parameters": Parameters(**asked), "trace": True, "logprobs": True,
    }  # fmt: skip


@needs_native
@pytest.mark.parametrize("rule", RULES)
def test_threads_and_reading_ahead_change_nothing(both, rule):
    for requests, width in ((1, 140_000), (3, 70_000)):
        given = large(rule, requests, width, requests, temperature=0.8, top_p=0.95)
        first = verify(**given)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for lazy in (False, True):
                assert differences(verify(**given, lazy=lazy), first) == []
    assert [one for one in both if one[1]] == []


class Guarded(Workspace):
    """Tensors with numbers before and behind them that nobody may change."""

    def __init__(self):
        super().__init__()
        self.whole = []

    def take(self, name, shape, dtype, device):
        size = math.prod(shape)
        whole = torch.full((size + 32,), 77, dtype=dtype)
        self.whole.append((whole, whole.clone()))
        return whole[16 : 16 + size].view(shape)


@needs_native
def test_a_round_writes_all_of_its_results_and_nothing_else():
    for made in batches(23, 3 * len(RULES), 3, faults=True):
        space = Guarded()
        out = made.verify(workspace=space, backend="torch")
        assert differences(out, made.verify(backend="torch")) == []
        assert len(space.whole) == 9
        for whole, before in space.whole:
            assert whole[:16].equal(before[:16])
            assert whole[-16:].equal(before[-16:])


@needs_native
def test_results_of_the_round_before_can_be_arguments():
    space, chains = Workspace(), torch.arange(41) * 7
    rows_, generator = torch.zeros(280, 4), torch.Generator().manual_seed(1)
    given = {"draws": Seeds(torch.arange(40), torch.arange(40)), "rule": "one_hot", "trace": True}
    tokens = torch.randint(4, (280,), generator=generator, dtype=torch.int32)
    held = verify(rows_, tokens, chains, **given, workspace=space).tokens.flatten()
    wanted = verify(rows_, held.clone(), chains, **given)
    assert differences(verify(rows_, held, chains, **given, workspace=space), wanted) == []


@needs_native
def test_draft_rows_that_are_none_are_flagged():
    p, tokens, edges = torch.zeros(3, 4), torch.tensor([-1, 1, 2]), torch.tensor([0, 3])
    draws = Seeds(torch.tensor([1]), torch.tensor([2]))
    for row in (-1, 0, 1, 2**40):
        q = DraftLogits(torch.zeros(0, 4), row=torch.full((3,), row))
        out = verify(p, tokens, edges, q, draws=draws)
        assert (out.counts.item(), out.status.item()) == (1, Status.BAD_DRAFT)


@needs_native
@pytest.mark.parametrize(
    ("edges", "parents"),
    [([1, 4], None), ([0, 5], None), ([0, 3, 2, 4], None), ([0, 4], [-1, 0, 2, 1]),
     ([0, 4], [-1, 0, -1, 1]), ([0, 2, 4], [-1, 0, -1, -2])],
)  # fmt: skip
def test_a_forest_that_nobody_checked_is_refused(monkeypatch, edges, parents):
    captured = []
    monkeypatch.setattr(backend, "verify", captured.append)
    given = large("target_only", 1, 8, 0)
    verify(**given)
    above = None if parents is None else torch.tensor(parents)
    forest = Forest(given["tokens"], torch.tensor(edges), above, 3, 3)
    count = len(edges) - 1
    seeds = Seeds(torch.arange(count), torch.arange(count))
    with pytest.raises(IndexError, match="outside"):
        native_round.verify(replace(captured[0], forest=forest, draws=seeds))


SMALL = 'extern "C" int seven() { return 7; }\n'


@pytest.fixture
def small(tmp_path):
    source = tmp_path / "small.cpp"
    source.write_text(SMALL)
    return source


@needs_native
def test_what_was_built_is_kept(small, tmp_path, monkeypatch):
    folder = tmp_path / "a" / "b"
    assert library.built([small], folder).seven() == 7
    (kept,) = folder.iterdir()
    monkeypatch.setenv("PATH", "")
    assert library.built([small], folder).seven() == 7
    small.write_text(SMALL.replace("7", "8"))
    with pytest.raises(library.Unavailable, match="no C\\+\\+ compiler"):
        library.built([small], folder)
    assert [*folder.iterdir()] == [kept]


@needs_native
def test_a_header_that_changed_is_built_again(small, tmp_path):
    header = tmp_path / "small.h"
    for number in (5, 6):
        header.write_text(f"const int number = {number};\n")
        small.write_text('#include "small.h"\nextern "C" int it() { return number; }\n')
        assert library.built([small], tmp_path / "kept", [header]).it() == number


@needs_native
def test_a_library_that_is_not_whole_is_built_again(small, tmp_path):
    kept = tmp_path / f"small-{library._key([small.read_bytes()])}.so"
    kept.write_bytes(b"torn")
    assert library.built([small], tmp_path).seven() == 7
    assert kept.stat().st_size > 4


@needs_native
def test_a_folder_that_cannot_be_written_is_done_without(small):
    assert library.built([small], small / "folder").seven() == 7


def test_why_there_is_no_native_code(small, tmp_path, monkeypatch):
    with pytest.raises(library.Unavailable, match="cannot be read"):
        library.built([tmp_path / "gone.cpp"], tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(library.Unavailable, match="no-such-compiler"):
        library.built([small], tmp_path)
    false = shutil.which("false")
    assert false is not None
    monkeypatch.setenv("CXX", false)
    with pytest.raises(library.Unavailable, match="does not build"):
        library.built([small], tmp_path)


def test_it_can_be_turned_off(monkeypatch):
    library._opened.cache_clear()
    monkeypatch.setenv("GPU_IMPL_NATIVE", "0")
    reason = native.why_not()
    with pytest.raises(RuntimeError, match="turns it off"):
        native.laws(pick(noise(1, 4)))
    library._opened.cache_clear()
    assert reason is not None
    assert "GPU_IMPL_NATIVE" in reason
