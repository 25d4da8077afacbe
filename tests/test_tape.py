"""The tape on tiny functions: each kind of operation, with the exact mass it must give."""

import copy
import math
import operator
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
import torch

from specref.gate.measure import measure
from specref.gate.subject import Problem, describe
from specref.gate.tape import Tape
from specref.gate.variable import Draw, Pick

GRID = 1 << 24
T = torch.tensor


def read(function, budget=400):
    """Measure a function without arguments; an exception is an outcome, as for a subject."""

    def program(tape, seed):
        try:
            return function()
        except Exception as error:
            return Problem("exception", describe(error))

    return measure(program, budget)


def law(function, budget=400):
    """Return the exact law of a function, which the tape must follow to the end."""
    got = read(function, budget)
    assert got.escapes == []
    assert got.complete
    assert sum(cell.mass for cell in got.cells) == 1
    return got.law


def below(value):
    """Return the mass of a float32 uniform below the float32 that a value is rounded to."""
    return Fraction(math.ceil(Fraction(float(np.float32(value))) * GRID), GRID)


def escapes(function):
    """Return the escapes of a function, as one text."""
    return " | ".join(read(function).escapes)


# Comparisons, and what comes before them.


@pytest.fixture(scope="module")
def every_uniform():
    """All float32 uniforms."""
    return torch.arange(GRID).double().mul(2.0**-24).float()


@pytest.mark.parametrize(
    "test",
    [
        "u < 0.25", "u <= 0.25", "u > 0.25", "u >= 0.25", "u == 0.25", "u != 0.25", "0.25 > u",
        "T(0.25) > u", "torch.lt(u, T(0.3))", "u < T(0.3)", "u < T(0.3, dtype=torch.float64)",
        "u < T(0)", "u <= T(0)", "u < 1", "u.isnan()", "torch.isfinite(u)", "torch.isinf(u.log())",
        "(u / 0).isnan()", "u == u", "(u - 0.5).signbit()", "~(u < 0.25)",
        "(u < 0.5) & (u >= 0.25)", "(u < 0.25) | (u >= 0.75)", "(u < 0.5) ^ (u < 0.75)",
        "u * 2 < 0.5", "u * -1 < -0.25", "u * 0 < 1e-9", "1 - u <= 0.25", "(u + 1) / 2 < 0.75",
        "0.25 / u > 1", "u.reciprocal() >= 4", "u.rsqrt() < 2", "u**2 < 0.25", "u.square() < 0.25",
        "u**-1 > 3", "u.sqrt() < 0.5", "4**u < 2", "torch.exp2(u) <= 1", "-u < -0.1",
        "u.log() < -1", "-torch.log(u) > 0.7", "torch.log1p(-u) > -0.3", "u.exp() > 1.5",
        "u.sigmoid() >= 0.6", "torch.tanh(u) < 0.5", "(u * 3).floor() == 1", "(u * 4).long() == 2",
        "(u * 4).int() >= 1", "(u * 4).to(torch.uint8) == 3", "(u * 3).round() == 2",
        "(u * 3).trunc() == 0", "(u - 0.25).clamp(min=0) > 0", "u.clamp(max=0.25) < 0.25",
        "torch.maximum(u, T(0.5)) > 0.5", "torch.relu(0.5 - u) > 0", "u.double() < 0.3",
        "u.half() < 0.25", "u.bfloat16() <= 0.25", "u.bool()", "u.logical_not()",
        "torch.where(u < 0.5, u, 1 - u) < 0.25", "(u - 0.5).sign() > 0",
    ],
)  # fmt: skip
def test_a_test_of_one_uniform_has_the_mass_that_counting_gives(test, every_uniform):
    decide = eval(f"lambda u: {test}")
    count = int(decide(every_uniform).sum())
    got = law(lambda: bool(decide(torch.rand(()))))
    assert got.get(True, 0) == Fraction(count, GRID)


# Moves: values go through views, copies and writes, and are found again.


def spread(function):
    """Return the mass of each outcome of a function of three fresh uniforms."""
    return law(lambda: function(torch.rand(3)))


MOVES = {
    "index": lambda u: u[1],
    "negative index": lambda u: u[-2],
    "slice": lambda u: u[1:2],
    "strided slice": lambda u: u[1::2][0],
    "view of a matrix": lambda u: u.view(1, 3).T[1],
    "reshape": lambda u: u[:, None].expand(3, 4).reshape(12)[4],
    "unbind": lambda u: u.unbind()[1],
    "split": lambda u: torch.split(u, [1, 2])[1][0],
    "chunk": lambda u: u.chunk(3)[1],
    "iteration": lambda u: list(u)[1],
    "narrow": lambda u: u.narrow(0, 1, 1),
    "flip": lambda u: u.flip(0)[1],
    "roll": lambda u: u.roll(1)[2],
    "clone": lambda u: u.clone()[1],
    "detach": lambda u: u.detach()[1],
    "contiguous": lambda u: u.expand(2, 3).contiguous()[1, 1],
    "gather": lambda u: u.gather(0, T([2, 1]))[1],
    "take": lambda u: u.take(T([1])),
    "take_along_dim": lambda u: torch.take_along_dim(u, T([1]), 0),
    "index_select": lambda u: u.index_select(0, T([1])),
    "index by tensor": lambda u: u[T([0, 1])][1],
    "boolean mask": lambda u: u[T([False, True, False])],
    "masked_select": lambda u: u.masked_select(T([False, True, False])),
    "masked_fill": lambda u: u.masked_fill(T([True, False, True]), 0.9)[1],
    "where": lambda u: torch.where(T([False, True, False]), u, 0.9)[1],
    "stack": lambda u: torch.stack([u, u * 0])[0, 1],
    "cat": lambda u: torch.cat([T([0.9]), u])[2],
    "hstack": lambda u: torch.hstack([T([0.9]), u])[2],
    "repeat": lambda u: u.repeat(2)[4],
    "repeat_interleave": lambda u: u.repeat_interleave(2)[3],
    "tile": lambda u: u.tile(2, 2)[1, 4],
    "pad": lambda u: torch.nn.functional.pad(u, (2, 0))[3],
    "tril": lambda u: u.expand(3, 3).tril()[1, 1],
    "diagonal": lambda u: u.expand(3, 3).diagonal()[1],
    "scatter": lambda u: torch.zeros(3).scatter(0, T([2, 0, 1]), u)[0],
    "scatter_ of a value": lambda u: u.scatter_(0, T([0]), 0.9)[1],
    "masked_scatter": lambda u: torch.zeros(4).masked_scatter(T([False, True, True, True]), u)[2],
    "index_put": lambda u: torch.zeros(3).index_put((T([2, 0, 1]),), u)[0],
    "index_fill": lambda u: u.index_fill(0, T([0]), 0.9)[1],
    "index_copy": lambda u: torch.zeros(3).index_copy(0, T([2, 0, 1]), u)[0],
    "select_scatter": lambda u: torch.zeros(3).select_scatter(u[1], 0, 2)[2],
    "slice_scatter": lambda u: torch.zeros(3).slice_scatter(u[1:], 0, 1)[1],
    "squeeze": lambda u: u[1:2].squeeze(),
    "squeeze_": lambda u: u[1:2].squeeze_(),
    "unsqueeze_": lambda u: u.unsqueeze_(0)[0, 1],
    "transpose_": lambda u: u.view(1, 3).transpose_(0, 1)[1],
    "as_strided": lambda u: u.as_strided((2,), (1,), 1)[0],
    "numpy-free list": lambda u: torch.stack(list(u)[1:])[0],
    "tolist": lambda u: u.tolist()[1],
    "item": lambda u: u[1].item(),
    "tensor of items": lambda u: T([u[1].item(), 0.5])[0],
    "as_tensor of a list": lambda u: torch.as_tensor(u.tolist())[1],
    "one term of a masked sum": lambda u: (u * T([0.0, 1.0, 0.0])).sum(),
    "one term of a one-hot sum": lambda u: (u * torch.nn.functional.one_hot(T(1), 3)).sum(-1),
    "sum of one and constants": lambda u: torch.where(T([False, True, False]), u, 0.0).sum(),
    "cumsum up to it": lambda u: torch.where(T([False, True, False]), u, 0.0).cumsum(0)[2],
    "float64 and back": lambda u: u.double()[1].float(),
    "swap by tuple": lambda u: (u[2], u[1])[1],
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES)
def test_a_moved_uniform_is_still_that_uniform(move):
    masses = spread(lambda u: bool(MOVES[move](u) < 0.125))
    assert masses == {True: Fraction(1, 8), False: Fraction(7, 8)}


def write(into, u):
    """Write a uniform in some way, and return the element that holds it."""
    buffer = torch.zeros(3)
    match into:
        case "element":
            buffer[1] = u[1]
        case "slice":
            buffer[1:] = u[1:]
        case "mask":
            buffer[T([False, True, False])] = u[1]
        case "copy_":
            buffer.copy_(u)
        case "a view":
            buffer.view(3, 1)[1, 0] = u[1]
        case "through the base":
            view, buffer = buffer[1:], buffer
            buffer[1] = u[1]
            return view[0]
        case "fill_ of a number":
            buffer.fill_(u[1].item())
        case "element of a number":
            buffer[1] = u[1].item()
        case "add_":
            buffer.add_(u)
        case "mul_ and back":
            u.mul_(4).div_(4)
            return u[1]
        case "addition assigned":
            buffer += u
        case "uniform_":
            return buffer[1:2].uniform_()
        case "random buffer by out=":
            torch.rand(3, out=buffer)
        case "product by out=":
            torch.mul(u, 1.0, out=buffer)
        case "out= of its own argument":
            torch.add(u, 0.0, out=u)
            return u[1]
        case "overwritten and restored":
            kept = u.clone()
            u.zero_()
            u.copy_(kept)
            return u[1]
        case "scatter_":
            buffer.scatter_(0, T([2, 1, 0]), u)
        case "index_put_":
            buffer.index_put_((T([1]),), u[1:2])
        case "masked_fill_ elsewhere":
            buffer.copy_(u).masked_fill_(T([True, False, True]), 0.0)
        case "swapped places":
            u[0], u[1] = u[1].clone(), u[0].clone()
            return u[0]
        case "a float64 buffer":
            buffer = torch.zeros(3, dtype=torch.float64)
            buffer[1] = u[1]
        case "resized":
            buffer = torch.empty(0).resize_(3)
            buffer.copy_(u)
    return buffer[1]


WRITES = [
    "element", "slice", "mask", "copy_", "a view", "through the base", "fill_ of a number",
    "element of a number", "add_", "mul_ and back", "addition assigned", "uniform_",
    "random buffer by out=", "product by out=", "out= of its own argument",
    "overwritten and restored", "scatter_", "index_put_", "masked_fill_ elsewhere",
    "swapped places", "a float64 buffer", "resized",
]  # fmt: skip


@pytest.mark.parametrize("into", WRITES)
def test_a_written_uniform_is_found_where_it_was_written(into):
    masses = spread(lambda u: bool(write(into, u) < 0.125))
    assert masses == {True: Fraction(1, 8), False: Fraction(7, 8)}


def test_what_is_written_over_is_forgotten():
    def program():
        u = torch.rand(3)
        u[1] = 0.5
        return bool(u[1] < 0.75)

    got = read(program)
    assert got.law == {True: 1}
    assert len(got.cells) == 1


def test_a_value_is_what_it_was_when_it_was_read():
    def program():
        u = torch.rand(1)
        doubled = u * 2
        u.zero_()
        return bool(doubled < 0.5), bool(u < 0.5)

    assert law(program) == {(True, True): Fraction(1, 4), (False, True): Fraction(3, 4)}


# Random operations.


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(2)[1],
        lambda: torch.rand(2, 1, generator=torch.Generator().manual_seed(1))[1],
        lambda: torch.rand((2,), dtype=torch.float64)[1],
        lambda: torch.rand_like(torch.zeros(3))[2],
        lambda: torch.rand_like(torch.zeros(3, dtype=torch.float64))[2],
        lambda: torch.empty(3).uniform_()[2],
        lambda: torch.empty(3, dtype=torch.float64).uniform_(0, 1)[2],
        lambda: torch.empty(2).uniform_(-1, 1)[1] / 2 + 0.5,
        lambda: torch.zeros(2, 2).T[1].uniform_()[0],
        lambda: torch.randint(1 << 24, (2,))[1] / (1 << 24),
        lambda: torch.randint(8, (2,))[1] / 8,
        lambda: torch.randint_like(torch.zeros(2), 8)[0] / 8,
        lambda: torch.empty(2).random_(8)[0] / 8,
        lambda: torch.distributions.Uniform(0.0, 1.0).sample((2,))[1],
    ],
)
def test_uniform_draws_of_every_kind_are_variables(draw):
    masses = law(lambda: bool(draw() < 0.125))
    assert masses == {True: Fraction(1, 8), False: Fraction(7, 8)}


WEIGHTS = [3.0, 0.0, 1.0, 4.0]
SHARES = {0: Fraction(3, 8), 2: Fraction(1, 8), 3: Fraction(1, 2)}


@pytest.mark.parametrize(
    "draw",
    [
        lambda w: torch.multinomial(w, 1),
        lambda w: torch.multinomial(w / 8, 1, generator=torch.Generator()),
        lambda w: w.multinomial(1, replacement=True),
        lambda w: torch.multinomial(w.expand(2, 4), 1)[1],
        lambda w: torch.multinomial(w, 2)[0],
        lambda w: torch.multinomial(w.half(), 1),
        lambda w: torch.multinomial(w, 1, out=torch.empty(1, dtype=torch.long)),
        lambda w: torch.distributions.Categorical(w).sample(),
        lambda w: torch.distributions.Categorical(probs=w).sample((3,))[1],
        lambda w: torch.distributions.Multinomial(1, w).sample().argmax(),
        lambda w: torch.distributions.OneHotCategorical(w).sample().nonzero()[0],
        lambda w: (torch.rand(1, dtype=torch.float64) * 8 >= w.double().cumsum(0)).sum(),
        lambda w: torch.searchsorted(w.cumsum(0), torch.rand(1) * 8, right=True),
        lambda w: torch.bucketize(torch.rand(1) * 8, w.cumsum(0), right=True),
        lambda w: torch.searchsorted(w.cumsum(0).repeat(2, 1), torch.rand(2, 1) * 8, right=True)[1],
        lambda w: (w.cumsum(0) > torch.rand(1) * 8).int().argmax(),
        lambda w: (w.cumsum(0) > torch.rand(1) * 8).nonzero()[0],
    ],
)  # fmt: skip
def test_every_way_to_draw_a_category_has_its_weights(draw):
    assert law(lambda: int(draw(T(WEIGHTS)))) == SHARES


def test_multinomial_without_replacement_renormalises_what_is_left():
    masses = law(lambda: tuple(torch.multinomial(T([1.0, 2.0, 1.0]), 2).tolist()))
    assert masses[0, 1] == Fraction(1, 4) * Fraction(2, 3)
    assert masses[1, 0] == Fraction(1, 2) * Fraction(1, 2)
    assert len(masses) == 6


def test_multinomial_with_replacement_does_not():
    masses = law(lambda: tuple(torch.multinomial(T([1.0, 3.0]), 2, replacement=True).tolist()))
    assert masses == {(0, 0): Fraction(1, 16), (0, 1): Fraction(3, 16), (1, 0): Fraction(3, 16),
                      (1, 1): Fraction(9, 16)}  # fmt: skip


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.bernoulli(T([0.25])),
        lambda: torch.bernoulli(T([0.25, 0.25], dtype=torch.float64))[1],
        lambda: torch.bernoulli(torch.zeros(2), p=0.25)[1],
        lambda: torch.zeros(2).bernoulli_(0.25)[1],
        lambda: torch.zeros(2, dtype=torch.bool).bernoulli_(0.25)[1],
        lambda: torch.zeros(2).bernoulli_(T([0.5, 0.25]))[1],
        lambda: torch.distributions.Bernoulli(0.25).sample(),
        lambda: torch.nn.functional.dropout(torch.ones(1), 0.75) > 0,
    ],
)
def test_bernoulli_draws_have_their_chances(draw):
    assert law(lambda: bool(draw() == 1)) == {True: Fraction(1, 4), False: Fraction(3, 4)}


def test_a_permutation_has_every_order_alike():
    masses = law(lambda: tuple(torch.randperm(3).tolist()))
    assert masses == dict.fromkeys(masses, Fraction(1, 6))
    assert len(masses) == 6


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float16, 12), (torch.bfloat16, 9)])
def test_half_precision_uniforms_are_zero_more_often(dtype, bits):
    mass = coin_of(dtype, lambda u: u <= 0)
    # Rounded to zero: nothing but 0 itself and, in float16, what is below its least number.
    least = Fraction(1, 1 << 24) if dtype == torch.float16 else Fraction(0)
    assert 0 <= mass - Fraction(1, 1 << bits) - Fraction(1, GRID) <= least
    assert coin_of(dtype, lambda u: u >= 1) == 0


def coin_of(dtype, test):
    return law(lambda: bool(test(torch.rand((), dtype=dtype)))).get(True, Fraction(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("test", ["u < 0.3", "u <= 0.25", "u * 2 > 0.7", "u > 0.001", "u == 0"])
def test_a_test_of_a_half_precision_uniform_has_the_mass_that_counting_gives(
    dtype, test, every_uniform
):
    decide = eval(f"lambda u: {test}")
    rounded = every_uniform.to(dtype)
    count = int(decide(torch.where(rounded == 1, 0, rounded)).sum())
    assert coin_of(dtype, decide) == Fraction(count, GRID)


def test_a_draw_in_a_range_that_rounds_to_its_end_starts_again(every_uniform):
    numbers = (every_uniform + 3).float()
    count = int((torch.where(numbers == 4, 3, numbers) < 3.5).sum())
    masses = law(lambda: bool(torch.empty(()).uniform_(3, 4) < 3.5))
    assert masses[True] == Fraction(count, GRID)
    assert int((numbers == 4).sum()) == 2


def test_nothing_is_drawn_from_empty_shapes():
    got = read(lambda: (torch.rand(0, 3).shape, torch.multinomial(torch.ones(2), 1).numel()))
    assert len(got.cells) == 2
    assert {len(cell.box) for cell in got.cells} == {1}


def test_the_subjects_own_generator_moves_on():
    g = torch.Generator().manual_seed(3)
    before = g.get_state()
    with Tape().playing():
        torch.rand(2, generator=g)
    assert not torch.equal(before, g.get_state())


def test_the_drafter_of_the_gate_can_draw_from_the_tape():
    def program(tape, seed):
        return tape((Fraction(1, 3), Fraction(2, 3))), tape.flip(Fraction(1, 5))

    got = measure(program, 10)
    assert got.exact
    assert got.law[0, True] == Fraction(1, 15)
    assert got.law[1, False] == Fraction(8, 15)


def test_what_a_run_tells():
    with Tape(((3, 5),)).playing() as run:
        u = torch.rand(2)
        torch.multinomial(torch.ones(2), 1)
        bool(u[1] < 0.25)
    assert run.variables == [Draw(GRID), Draw(GRID), Pick((Fraction(1, 2), Fraction(1, 2)))]
    assert run.point == [4, GRID // 2, 0]
    assert run.cell == ((3, 5), (GRID // 4, GRID), (0, 1))
    ((cut,),) = run.cuts[1:2]
    assert cut.what == "lt"
    assert cut.where.startswith(f"{__file__}:")
    assert run.escapes == []


# Python numbers.


@pytest.mark.parametrize(
    "test",
    [
        lambda u: u.item() < 0.25,
        lambda u: operator.gt(0.25, u.item()),
        lambda u: not u.item() >= 0.25,
        lambda u: u.item() < T(0.25),
        lambda u: T(0.25) > u.item(),
        lambda u: u.item() < np.float64(0.25),
        lambda u: np.float64(0.25) > u.item(),
        lambda u: np.float32(0.25) > u.item(),
        lambda u: u.item() < Fraction(1, 4),
        lambda u: u.item() * 4 < 1,
        lambda u: 1 - u.item() > 0.75,
        lambda u: 2 * u.item() + 1 < 1.5,
        lambda u: u.item() / 2 < 0.125,
        lambda u: -u.item() > -0.25,
        lambda u: abs(u.item()) < 0.25,
        lambda u: u.item() ** 2 < 0.0625,
        lambda u: int(u.item() * 4) == 0,
        lambda u: math.floor(u.item() * 4) == 0,
        lambda u: u.item() * 4 // 1 == 0,
        lambda u: min(u.item(), 0.5) < 0.25,
        lambda u: max(u.item(), 0.1) < 0.25,
        lambda u: sum([u.item(), 0.25]) < 0.5,
        lambda u: [x for x in u[None].tolist() if x < 0.25] != [],
        lambda u: any(x < 0.25 for x in u.expand(1, 1).tolist()[0]),
        lambda u: T(u.item()) < 0.25,
        lambda u: T([[u.item()]], dtype=torch.float64).lt(0.25).all(),
        lambda u: torch.as_tensor(u.item()).clamp(max=0.5) < 0.25,
        lambda u: T([0.5]).mul(u.item()) < 0.125,
        lambda u: T([0.5]) * u.item() < 0.125,
        lambda u: u.item() * T([0.5]) < 0.125,
        lambda u: (T([0.1, 0.25, 1.0]) > u.item()).sum() >= 2,
        lambda u: torch.where(T(True), u.item(), 1.0) < 0.25,
        lambda u: torch.searchsorted(T([0.25, 1.0]), T([u.item()]), right=True) == 0,
        lambda u: np.searchsorted(np.array([0.25, 1.0]), u.item(), side="right") == 0,
        lambda u: int(u * 4) == 0,
        lambda u: not bool(torch.floor(u * 4)),
        lambda u: ["a", "b", "c", "d"][(u * 4).long()] == "a",
        lambda u: ["a", "b", "c", "d"][int((u * 4).floor().item())] == "a",
    ],
)
def test_a_python_number_is_followed(test):
    assert law(lambda: bool(test(torch.rand(())))) == {True: Fraction(1, 4), False: Fraction(3, 4)}


def test_a_python_number_does_not_promote_what_it_meets():
    def followed(draw):
        return law(lambda: bool((T([1, 2]) * draw().item())[0] < 0.3))

    assert followed(lambda: torch.rand(()))[True] == below(0.3)
    # Rounded to float32 first: what is nearest to 0.3 is not below it, from half a step on.
    fine = followed(lambda: torch.rand((), dtype=torch.float64))
    assert fine[True] == below(0.3) - Fraction(1, 1 << 26)


def test_an_integer_is_followed_by_trying_its_values():
    masses = law(lambda: sum(torch.randint(1, 4, (2,)).tolist()))
    assert masses == {total: Fraction(3 - abs(total - 4), 9) for total in range(2, 7)}
    ranked = law(lambda: int(torch.arange(4)[torch.randint(4, (1,))]))
    assert ranked == dict.fromkeys(range(4), Fraction(1, 4))


def test_code_that_wants_a_real_number_is_told_apart_from_code_that_fails():
    got = read(lambda: f"{torch.rand(()).item():.3f}" < "0.500")
    assert "a draw leaves torch through item" in got.escapes[0]
    assert not any(isinstance(outcome, Problem) for outcome in got.law)


# Escapes.


EXITS = {
    "numpy": lambda u: u.numpy()[0] < 0.5,
    "numpy(force=True)": lambda u: u.numpy(force=True)[0] < 0.5,
    "np.asarray": lambda u: np.asarray(u)[0] < 0.5,
    "np.array of a list": lambda u: np.array(u.tolist(), dtype=float)[0] < 0.5,
    "float": lambda u: float(u[0]) < 0.5,
    "float of item": lambda u: float(u[0].item()) < 0.5,
    "math.log": lambda u: math.log(u[0].item()) < -1,
    "complex": lambda u: complex(u[0]).real < 0.5,
    "hash": lambda u: u[0].item() in {0.5},
    "repr": lambda u: "5" in repr(u),
    "format": lambda u: f"{u[0]:.1f}" < "0.5",
    "np.from_dlpack": lambda u: np.from_dlpack(u)[0] < 0.5,
    "torch.from_dlpack": lambda u: torch.from_dlpack(u)[0] < 0.5,
    "data_ptr": lambda u: u.data_ptr() and 1,
    "apply_": lambda u: u.apply_(lambda v: v < 0.5)[0],
    "map_": lambda u: u.map_(u, lambda v, w: v < 0.5)[0],
    "storage": lambda u: u.untyped_storage().tolist()[0],
    "memory of NumPy": lambda u: filled(np.zeros(2, np.float32), torch.from_numpy)[0] < 0.5,
    "memory lent to NumPy": lambda u: filled(torch.zeros(2), lambda t: t).numpy()[0] < 0.5,
    "memory lent before": lambda u: filled(torch.zeros(2).numpy(), torch.from_numpy)[0] < 0.5,
    "pickle": lambda u: pickle.loads(pickle.dumps(u))[0] < 0.5,
    "deepcopy": lambda u: copy.deepcopy(u)[0] < 0.5,
    "equal": lambda u: torch.equal(u, T([0.5, 0.5])),
    "allclose": lambda u: torch.allclose(u, T([0.5, 0.5])),
    "bits": lambda u: u.view(torch.int32)[0] < 1 << 29,
    "bytes": lambda u: u.view(torch.uint8)[0] < 128,
    "bits written": lambda u: bool(u.view(torch.int32).add_(1)[0] < 1) or bool(u[0] < 0.5),
    "two draws": lambda u: u[0] < u[1],
    "product": lambda u: u[0] * u[1] < 0.5,
    "square by hand": lambda u: u[0] * (1 - u[0]) < 0.2,
    "sum of two": lambda u: u.sum() < 1,
    "mean": lambda u: u.mean() < 0.5,
    "dot": lambda u: u @ T([1.0, 0.0]) < 0.5,
    "argmax": lambda u: int((u + T([0.0, 0.5])).argmax()) == 0,
    "sort": lambda u: u.sort().values[0] < 0.5,
    "topk": lambda u: int((u + T([0.0, 0.5])).topk(1).indices) == 0,
    "max": lambda u: u.max() < 0.5,
    "remainder": lambda u: u[0] % 0.5 < 0.25,
    "sine": lambda u: u[0].sin() < 0.5,
    "nan hidden": lambda u: (u[0] / 0).nan_to_num() < 0.5,
    "not monotone": lambda u: (u[0] - 0.5).abs() < 0.25,
    "accumulated": lambda u: torch.zeros(1).scatter_add(0, T([0, 0]), u)[0] < 0.5,
    "scattered sum": lambda u: torch.zeros(1).scatter(0, T([0, 0]), u, reduce="add")[0] < 0.5,
    "put together": lambda u: T([0.0]).index_put((T([0, 0]),), u, accumulate=True) < 0.5,
    "table of draws": lambda u: int(torch.searchsorted(u.cumsum(0), T([0.5]))),
    "weights of draws": lambda u: int(torch.multinomial(u, 1)),
    "chances of draws": lambda u: int(torch.bernoulli(u)[0]),
    "normal": lambda u: torch.randn(()) < 0,
    "exponential": lambda u: torch.empty(1).half().exponential_() < 1,
    "wide integers": lambda u: torch.randint(1 << 40, ()).item() % 2,
    "all integers": lambda u: torch.empty(1, dtype=torch.int64).random_() % 2,
    "long permutation": lambda u: int(torch.randperm(9)[0]),
    "ambient": lambda u: np.random.random() < 0.5,
    "another thread": lambda u: in_thread(lambda: bool(torch.rand(()) < 0.5)),
}  # fmt: skip


def filled(buffer, as_tensor):
    """Fill a buffer with uniforms by way of a tensor on the same memory."""
    as_tensor(buffer).uniform_()
    return buffer


def in_thread(function):
    """Return what a function gives in a thread of its own."""
    found = []
    worker = threading.Thread(target=lambda: found.append(function()))
    worker.start()
    worker.join()
    return found[0]


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter:UserWarning")
@pytest.mark.parametrize("name", EXITS)
def test_what_cannot_be_followed_is_an_escape(name):
    got = read(lambda: bool(EXITS[name](torch.rand(2))))
    assert got.escapes
    assert not any(isinstance(outcome, Problem) for outcome in got.law)


def test_an_escape_names_the_operation_and_the_line():
    text = escapes(lambda: bool(torch.cat([torch.rand(2).sin()])[0] < 0.5))
    assert text.startswith("lt decides on draws that went through sin at ")
    assert text.count(f"{__file__}:") == 2


def test_draws_that_decide_nothing_may_leave():
    got = read(lambda: bool((torch.rand(2) < 0.5).numpy()[0]))
    assert got.exact
    clean = read(lambda: float(torch.ones(2).numpy()[0]) + float(T(1.0)))
    assert clean.law == {2.0: 1}
    assert clean.exact


def test_code_that_runs_compiled_is_not_the_code_that_is_read():
    compiled = torch.compile(lambda: torch.rand(2) < 0.5, backend="eager")
    assert "torch.compile runs other code" in escapes(lambda: bool(compiled()[0]))
    inside = torch.compile(lambda u: u < 0.5, backend="eager")
    assert "torch.compile runs other code" in escapes(lambda: bool(inside(torch.rand(2))[0]))


def test_a_draw_on_another_device_is_an_escape():
    assert "rand on meta is not on the tape" in escapes(lambda: torch.rand(2, device="meta").dtype)


def test_operations_of_other_libraries_are_not_taken_for_torchs_own():
    with torch.library._scoped_library("twins", "DEF") as library:
        for schema, run in {
            "rand(int n) -> Tensor": lambda n: torch.full((n,), 0.5),
            "mul(Tensor a) -> Tensor": lambda a: (a * 7) % 1,
            "add_(Tensor(a!) a) -> Tensor(a!)": lambda a: a.copy_((a * 7) % 1),
        }.items():
            library.define(schema)
            library.impl(schema.split("(")[0], run, "CompositeExplicitAutograd")
        ops = torch.ops.twins
        assert law(lambda: bool(ops.rand(3)[0] < 0.75)) == {True: 1}
        assert "twins::mul" in escapes(lambda: bool(ops.mul(torch.rand(3))[0] < 0.5))
        assert "twins::add_" in escapes(lambda: bool(ops.add_(torch.rand(3))[0] < 0.5))


# Surroundings.


def test_inference_mode_may_begin_and_end_anywhere():
    def program():
        with torch.inference_mode():
            u, k = torch.rand(3), torch.randint(4, (2,))
        v = u.clone()
        with torch.inference_mode():
            v.mul_(2)
            found = torch.where(v < 1, v, u)
        return bool(found[0] < 0.5), k[0].item()

    assert law(program) == {
        (small, k): (Fraction(1, 4) if small else Fraction(3, 4)) / 4
        for small in (True, False)
        for k in range(4)
    }


def test_gradients_may_be_wanted():
    def program():
        p = torch.nn.Parameter(T([0.25, 0.75]))
        with torch.enable_grad():
            u = torch.rand(2) * p
            return bool((u < 0.125)[0]), u.requires_grad, int(torch.multinomial(p, 1))

    masses = law(program)
    assert masses[True, True, 0] == Fraction(1, 8)
    assert masses[False, True, 1] == Fraction(3, 8)


def test_vmap_is_followed():
    def program():
        accept = torch.func.vmap(lambda p: torch.rand(()) < p, randomness="different")
        return tuple(accept(T([0.25, 0.5])).tolist())

    assert law(program)[True, True] == Fraction(1, 8)
    assert law(program)[False, True] == Fraction(3, 8)


def test_a_default_type_and_device_may_be_set():
    def program():
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device("cpu"):
                return bool(torch.rand(2)[0] < 0.3)
        finally:
            torch.set_default_dtype(torch.float32)

    assert law(program)[True] == Fraction(math.ceil(Fraction(0.3) * 2**53), 2**53)


def test_what_torch_raises_reaches_the_subject_unchanged():
    def program():
        u = torch.rand(2)
        try:
            u[5]
        except IndexError:
            return "caught", bool(u[0] < 0.5)

    assert set(law(program)) == {("caught", True), ("caught", False)}
    for wrong, name in [
        (lambda: torch.multinomial(torch.zeros(2), 1), "RuntimeError: invalid multinomial"),
        (lambda: torch.bernoulli(T([1.5])), "RuntimeError: Expected p_in >= 0"),
        (lambda: torch.rand(2) + torch.rand(3), "RuntimeError: The size of tensor a"),
        (lambda: torch.rand(2).item(), "RuntimeError: a Tensor with 2 elements"),
        (lambda: torch.rand(2).uniform_(2, 1), "RuntimeError: uniform_ expects to return"),
    ]:
        ((outcome, mass),) = read(wrong).law.items()
        assert mass == 1
        assert outcome.text.startswith(name)


def test_a_failure_of_the_tape_does_not_look_like_one_of_the_subject(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("ours")

    for method in ("_elementwise", "_compare", "_move", "uniforms"):
        with monkeypatch.context() as patch:
            patch.setattr(Tape, method, fail)
            got = read(lambda: bool(torch.rand(2)[T([1])] * 2 < 0.5))
        assert not any(isinstance(outcome, Problem) for outcome in got.law), method
        assert "could not be followed (RuntimeError: ours)" in got.escapes[0]
    with monkeypatch.context() as patch:
        patch.setattr(Tape, "settle", fail)
        got = read(lambda: torch.randint(4, ()).item())
    assert "item could not be followed (RuntimeError: ours)" in got.escapes[0]
    assert all(isinstance(outcome, int) for outcome in got.law)


def test_a_step_that_is_not_repeated_as_it_was_is_an_escape(monkeypatch):
    real = Tape._elementwise

    def forgets_a_factor(tape, call):
        out = real(tape, call)
        tape.taint.steps[-1].replay.args[1] = 1.0
        return out

    monkeypatch.setattr(Tape, "_elementwise", forgets_a_factor)
    assert "is not what the tape makes of its draws" in escapes(
        lambda: bool(torch.rand(()) * 3 < 1)
    )
