"""Given draws through generators: every kind of draw, whole laws, and what is left behind."""

import copy
import ctypes
import os
import random
import random as aliased
import secrets
import sys
import threading
import time
from fractions import Fraction
from math import ceil, log
from random import random as python_random
from time import monotonic

import numpy as np
import pytest
import torch
from numpy.random import PCG64, Generator, default_rng

from specref.choice import law
from specref.decode import complete, target_law
from specref.dist import as_fraction, tv
from specref.draft import flat
from specref.gate.cases import Case, Fixture, fixtures
from specref.gate.checks import band_of
from specref.gate.evidence import RISK
from specref.gate.inject import Plan, controlled, play
from specref.gate.learn import CHANGES
from specref.gate.limit import TimeLimit, deaf, limited
from specref.gate.loading import load
from specref.gate.opaque import Drawn, measure_opaque, measure_program, repeated_draws
from specref.gate.seeds import seed_of, states_kept
from specref.gate.subject import Hung
from specref.gate.words import tempered, untempered
from specref.rules import RULES
from specref.subjects.programs import NumpyChoices, of_fault, of_rule

FINE, WORD = 1 << 53, 1 << 32
held = default_rng(77)
"""A generator from before, as an engine keeps one."""

held_method = random.Random(1).uniform

WEIGHTS = [0.1, 0.2, 0.3, 0.4]


@pytest.fixture(autouse=True)
def as_before():
    """Nothing stays behind: names, methods, classes, states."""
    names = {
        "random.random": random.random,
        "random.getrandbits": random.getrandbits,
        "aliased": aliased.random,
        "python_random": python_random,
        "PCG64": PCG64,
        "numpy": np.random.PCG64,
        "mtrand": np.random.mtrand._MT19937,
        "generator": np.random._generator.PCG64,
        "bits": np.random.get_bit_generator(),
    }
    methods = dict(vars(random.Random))
    before = random.getstate(), np.random.get_state(legacy=False)
    yield
    after = random.getstate(), np.random.get_state(legacy=False)
    assert names == {
        "random.random": random.random,
        "random.getrandbits": random.getrandbits,
        "aliased": aliased.random,
        "python_random": python_random,
        "PCG64": PCG64,
        "numpy": np.random.PCG64,
        "mtrand": np.random.mtrand._MT19937,
        "generator": np.random._generator.PCG64,
        "bits": np.random.get_bit_generator(),
    }
    assert methods == dict(vars(random.Random))
    assert before[0] == after[0]
    assert str(before[1]) == str(after[1])


# Single draws.


def played(program, *given):
    """Return the outcome of a run on given draws, pairs of an integer and a size."""
    with states_kept(), controlled():
        got = play(program, 3, [k for k, _ in given], Plan(tuple(size for _, size in given)))
    assert got.drawn[: len(given)] == list(given)
    return got.outcome


def global_numpy(seed):
    np.random.seed(seed)
    return np.random.random()


def global_python(seed):
    random.seed(seed)
    return random.random()


DOUBLES = {
    "default_rng": lambda seed: default_rng(seed).random(),
    "default_rng, by its module": lambda seed: np.random.default_rng(seed).random(),
    "without a seed": lambda seed: default_rng().random(),
    "PCG64": lambda seed: Generator(PCG64(seed)).random(),
    "PCG64DXSM": lambda seed: Generator(np.random.PCG64DXSM(seed)).random(),
    "Philox": lambda seed: Generator(np.random.Philox(seed)).random(),
    "SFC64": lambda seed: Generator(np.random.SFC64(seed)).random(),
    "MT19937": lambda seed: Generator(np.random.MT19937(seed)).random(),
    "RandomState": lambda seed: np.random.RandomState(seed).random_sample(),
    "RandomState on PCG64": lambda seed: np.random.RandomState(PCG64(seed)).rand(),
    "global NumPy": global_numpy,
    "global NumPy, not seeded": lambda seed: np.random.uniform(),
    "held": lambda seed: held.random(),
    "spawned": lambda seed: default_rng(seed).spawn(2)[1].random(),
    "copied": lambda seed: copy.deepcopy(default_rng(seed)).random(),
    "jumped": lambda seed: Generator(PCG64(seed).jumped()).random(),
    "Random": lambda seed: random.Random(seed).random(),
    "global Python": global_python,
    "global Python, not seeded": lambda seed: aliased.random(),
    "a name of its own": lambda seed: python_random(),
    "uniform": lambda seed: random.uniform(0, 1),
    "held method": lambda seed: held_method(0, 1),
}


@pytest.mark.parametrize("program", DOUBLES.values(), ids=DOUBLES)
def test_a_double_is_what_is_given(program):
    with states_kept(), controlled():
        for k in (0, 1, 123456789012345, FINE - 1):
            assert played(program, (k, FINE)) == k / FINE


def test_words_are_what_is_given():
    assert played(lambda s: default_rng(s).random(dtype=np.float32), (5 << 8, WORD)) == 5 / 2**24
    assert played(lambda s: random.getrandbits(7), (99, 128)) == 99
    assert played(lambda s: random.Random(s).getrandbits(100) >> 38, (12345, 1 << 62)) == 12345
    assert played(lambda s: PCG64(s).random_raw() >> 2, (12345, 1 << 62)) == 12345
    assert played(lambda s: np.random.MT19937(s).random_raw(), (12345, WORD)) == 12345
    assert played(lambda s: random.Random(s).randrange(10, 20), (7, 10)) == 17
    assert played(lambda s: random.choice("abc"), (2, 3)) == "c"
    assert played(lambda s: int(np.random.default_rng(s).integers(4)), (3 << 30, WORD)) == 3


def test_methods_read_the_draws_as_they_do():
    half, low = (FINE // 2, FINE), (FINE // 20, FINE)
    assert played(lambda s: random.choices(range(4), WEIGHTS, k=2), half, low) == [2, 0]
    assert played(lambda s: default_rng(s).choice(4, p=WEIGHTS), half) == 2
    assert played(lambda s: np.random.choice(4, p=WEIGHTS), low) == 0
    assert played(lambda s: list(default_rng(s).random(2)), half, low) == [0.5, low[0] / FINE]
    assert played(lambda s: random.sample(range(5), 2), (4, 5), (0, 4)) == [4, 0]


def test_a_coarse_draw_reads_a_part_of_a_fine_column():
    with states_kept(), controlled():
        got = play(lambda seed: random.getrandbits(3), 0, [5 * FINE // 8], Plan((FINE,)))
    assert (got.outcome, got.drawn) == (5, [(5, 8)])


def test_what_is_not_given_is_real_and_written_down():
    real = default_rng(3).random(3)
    with controlled():
        got = play(lambda seed: default_rng(seed).random(3), 3, [0], Plan((FINE,)))
        assert (default_rng(3).random(3) == real).all()  # outside of a run all is as ever
    assert list(got.outcome) == [0, *real[1:]]
    assert [k / FINE for k, _ in got.drawn] == [0, *real[1:]]


def test_the_state_goes_on_as_it_would():
    def program(seed):
        generator = np.random.RandomState(seed)
        generator.random_sample(5)
        return generator.get_state(legacy=False)

    alone = program(3)
    with controlled():
        got = play(program, 3, [1, 2], Plan((FINE,) * 2))
    assert str(got.outcome) == str(alone)


def test_equal_states_give_equal_draws():
    def seeded_twice(seed):
        return default_rng(seed).random(), default_rng(seed).random()

    def put_back(seed):
        generator = random.Random(seed)
        state = generator.getstate()
        first = generator.random()
        generator.setstate(state)
        return first, generator.random()

    def words(seed):
        return tuple(int(default_rng(seed).integers(8)) for _ in range(2))

    with controlled():
        for program, size in ((seeded_twice, FINE), (put_back, FINE), (words, WORD)):
            got = play(program, 3, [size // 2, 0], Plan((size,) * 2))
            assert len(got.drawn) == 1
            assert got.repeats == [0]
            assert got.outcome in ((0.5, 0.5), (4, 4))


def test_one_state_read_in_two_ways_is_noted():
    def program(seed):
        return random.Random(seed).getrandbits(3), random.Random(seed).getrandbits(5)

    with controlled():
        assert play(program, 3).escapes == ["one state of a generator is read in two ways"]


def test_stand_ins_are_instances():
    with controlled():
        made = np.random.PCG64(1)
        assert isinstance(made, np.random.PCG64)
        assert isinstance(made, PCG64)
        assert isinstance(held.bit_generator, np.random.PCG64)
        assert not isinstance(made, np.random.MT19937)
        assert np.random.get_state()[0] == "MT19937"
    assert isinstance(made, PCG64)
    assert Generator(made).random() == default_rng(1).random()


# What is left behind.


def test_generators_made_inside_are_as_they_should_be_afterwards():
    kept = []
    with controlled():
        play(lambda seed: kept.append(default_rng(seed)), 4)
        play(lambda seed: kept.append(np.random.RandomState(seed)), 4)
    assert (kept[0].random(4) == default_rng(4).random(4)).all()
    assert (kept[1].random_sample(4) == np.random.RandomState(4).random_sample(4)).all()


def test_the_second_of_two_normal_numbers_is_kept():
    own, twin = np.random.RandomState(5), np.random.RandomState(5)
    assert own.standard_normal() == twin.standard_normal()
    with controlled():
        assert own.standard_normal() == twin.standard_normal()
    assert own.standard_normal() == twin.standard_normal()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_gives_everything_back(error):
    def program(seed):
        random.seed(seed)
        np.random.seed(seed)
        if random.random() + np.random.random() > 1:
            raise error
        return 0

    with pytest.raises(error):
        measure_program(program, 1000, 0)


def test_an_interrupt_while_a_number_is_drawn_is_not_lost(monkeypatch):
    from specref.gate import inject

    def interrupt(self, real):
        raise KeyboardInterrupt

    monkeypatch.setattr(inject._Live, "double", interrupt)
    with pytest.raises(KeyboardInterrupt), controlled():
        play(lambda seed: default_rng(seed).random(), 0)


def test_control_is_taken_once_and_given_back_once():
    with controlled():
        with controlled():
            pass
        assert played(lambda seed: default_rng(seed).random(), (1, FINE)) == 1 / FINE
        assert np.random.PCG64 is not default_rng(0).bit_generator.__class__.__mro__[1]
    with pytest.raises(AssertionError):
        play(lambda seed: 0, 0)


# Laws.


def exact_law(program, budget=20_000, probes=500, spread=500):
    got = measure_program(program, budget, 1, probes, spread)
    assert got.exact, got.escapes
    assert sum(cell.mass for cell in got.cells) == 1
    return got.law


def of_cdf(weights):
    """Return the law of one double, looked up among float sums as NumPy does it."""
    ends = [int(np.ceil(end * FINE)) for end in np.cumsum(weights) / np.cumsum(weights)[-1]]
    masses = [b - a for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    return {x: Fraction(mass, FINE) for x, mass in enumerate(masses)}


def numpy_global_choice(seed):
    np.random.seed(seed)
    return int(np.random.choice(4, p=WEIGHTS))


def test_laws_of_numpy_are_exact():
    wanted = of_cdf(WEIGHTS)
    assert exact_law(lambda s: int(default_rng(s).choice(4, p=WEIGHTS))) == wanted
    assert exact_law(lambda s: int(np.random.RandomState(s).choice(4, p=WEIGHTS))) == wanted
    assert exact_law(numpy_global_choice) == wanted
    assert exact_law(lambda s: int(held.choice(4, p=WEIGHTS))) == wanted


def test_laws_of_python_are_exact():
    cut = ceil(Fraction(0.3) * FINE)
    assert exact_law(lambda s: random.Random(s).random() < 0.3)[True] == Fraction(cut, FINE)
    assert exact_law(lambda s: random.randrange(3)) == dict.fromkeys(range(3), Fraction(1, 3))
    got = exact_law(lambda s: tuple(random.Random(s).sample(range(3), 3)))
    assert len(got) == 6
    assert set(got.values()) == {Fraction(1, 6)}
    got = exact_law(lambda s: random.choices(range(4), WEIGHTS)[0])
    assert float(tv(got, of_cdf(WEIGHTS))) < 1e-15


def test_integers_of_numpy_leave_dust_that_is_admitted():
    got = measure_program(lambda s: int(default_rng(s).integers(3)), 20_000, 1, 500, 100)
    assert got.exact
    assert sum(cell.mass for cell in got.cells) == 1
    assert tv(got.law, dict.fromkeys(range(3), Fraction(1, 3))) < 1e-9


def test_draws_that_a_path_does_not_need():
    def program(seed):
        rng = default_rng(seed)
        if rng.random() < 0.5:
            return "a", bool(rng.random() < 0.25)
        return "b", random.Random(seed).getrandbits(2), bool(rng.random() < 0.125)

    got = exact_law(program)
    assert got["a", True] == Fraction(1, 8)
    assert got["b", 3, True] == Fraction(1, 64)
    assert len(got) == 10


def test_a_generator_seeded_twice_is_measured_as_one():
    def program(seed):
        return default_rng(seed).random() < 0.5, default_rng(seed).random() < 0.25

    assert exact_law(program) == {
        (True, True): Fraction(1, 4), (True, False): Fraction(1, 4), (False, False): Fraction(1, 2),
    }  # fmt: skip


def test_a_loop_that_draws_until_it_likes_a_number():
    def program(seed):
        generator = random.Random(seed)
        while (bits := generator.getrandbits(2)) == 3:
            pass
        return bits

    got = measure_program(program, 50_000, 1, 500, 100)
    assert got.exact
    assert sum(cell.mass for cell in got.cells) == 1
    assert got.missed > log(2 / RISK) / 500
    assert tv(got.law, dict.fromkeys(range(3), Fraction(1, 3))) < 1e-14


def test_a_race_ends_with_the_budget():
    def program(seed):
        return int((default_rng(seed).exponential(size=3) / [0.2, 0.3, 0.5]).argmin())

    got = measure_program(program, 3_000, 1)
    assert not got.complete
    assert got.calls <= 3_000


# Randomness that is not under control.

HIDDEN = {
    "urandom": lambda seed: os.urandom(1)[0] < 100,
    "SystemRandom": lambda seed: random.SystemRandom().random() < 0.3,
    "SystemRandom, whole numbers": lambda seed: random.SystemRandom().randrange(3),
    "secrets": lambda seed: secrets.choice("abc"),
    "the clock": lambda seed: time.perf_counter_ns() // 64 % 2,
    "the seed itself": lambda seed: seed % 3,
    "one in a hundred": lambda seed: (seed * 2654435761 >> 7) % 100 == 0,
    "a core class": lambda seed: random.Random.__mro__[1](seed).random() < 0.5,
}


@pytest.mark.parametrize("program", HIDDEN.values(), ids=HIDDEN)
def test_hidden_randomness_is_an_escape(program):
    got = measure_program(program, 20_000, 1)
    assert got.escapes == [CHANGES]
    assert not got.exact


def test_hidden_randomness_beside_draws_is_an_escape():
    got = measure_program(lambda s: (default_rng(s).random() < 0.5, s % 50 == 0), 20_000, 1)
    assert got.escapes == [CHANGES]


def test_draws_of_several_threads_are_an_escape():
    def program(seed):
        out = []
        thread = threading.Thread(target=lambda: out.append(default_rng(seed).random() < 0.5))
        thread.start()
        thread.join()
        return out[0]

    got = measure_program(program, 20_000, 1)
    assert got.escapes == ["draws are made in several threads, in no order"]


def test_a_subject_that_hangs_is_stopped_while_it_draws():
    class Loops:
        rules = ("token",)
        time_limit = 0.2

        def sample(self, case, n, seed):
            rng, end = default_rng(seed), time.monotonic() + 30  # what is drawn is kept
            while rng.random() < 2 and time.monotonic() < end:
                pass

    case = Case(((0.5, 0.5),) * 2, ((0.5, 0.5),) * 2, (0,), (0,), "token")
    hook = sys.unraisablehook
    with pytest.raises(Hung, match="sample ran longer"):
        measure_opaque(load(Loops()), case, 5_000, 1, 10, 10)
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("marked", [True, False], ids=["deaf", "any callback"])
def test_a_time_limit_that_rings_where_nothing_can_be_raised_rings_again(marked, monkeypatch):
    """C drops what its callbacks raise; a single ring would be lost, and the subject run on."""
    monkeypatch.setattr(sys, "unraisablehook", lambda report: None)

    def slow():
        start = monotonic()
        while monotonic() < start + 0.2:
            pass

    callback, start = ctypes.CFUNCTYPE(None)(deaf(slow) if marked else slow), monotonic()

    def hang():
        callback()
        while monotonic() < start + 60:
            pass

    with pytest.raises(TimeLimit), limited(0.05):
        hang()
    assert monotonic() < start + 30


# Torch, word by word.


def default_seeded(seed):
    torch.manual_seed(seed)
    return torch.rand(3)


def one_of_its_own(seed):
    return torch.rand(3, generator=torch.Generator().manual_seed(seed))


def one_that_seeds_itself(seed):
    generator = torch.Generator("cpu")
    generator.seed()
    return torch.rand(3, generator=generator)


@pytest.mark.parametrize(
    "draw", [lambda seed: torch.rand(3), default_seeded, one_of_its_own, one_that_seeds_itself]
)
def test_words_of_torch_are_what_is_given(draw):
    state = torch.get_rng_state()
    with states_kept(), controlled():
        blocks = play(draw, 3).blocks
        assert max(blocks) == 3
        given = [0, (1 << 24) - 1, 12345]
        got = play(draw, 3, given, Plan((1 << 24,) * 3, blocks))
        assert (got.outcome * 2.0**24).tolist() == given
        assert got.drawn == [(k, 1 << 24) for k in given]
        assert got.blocks == blocks
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.Generator.__module__ == "torch._C"
    assert torch.manual_seed.__module__ == "torch.random"


def test_pairs_of_words_are_float64_uniforms():
    with states_kept(), controlled():
        plan = Plan((FINE,) * 2, (2,), pairs=True)
        got = play(lambda seed: torch.rand(2, dtype=torch.float64), 3, [1, FINE - 1], plan)
    assert got.outcome.tolist() == [1 / FINE, 1 - 1 / FINE]


def test_tempering_is_undone():
    for word in (0, 1, 0xFFFFFFFF, 0x80000000, 123456789):
        assert tempered(untempered(word)) == word == untempered(tempered(word))
    own = np.random.MT19937(5)
    state = own.state["state"]["key"]
    own.state = {"bit_generator": "MT19937", "state": {"key": state, "pos": 0}}
    assert [tempered(int(y)) for y in state] == own.random_raw(624).tolist()


def test_laws_of_torch_are_exact():
    def two(seed):
        u = default_seeded(seed)
        return bool(u[0] < 0.25), bool(u[2] < 0.5)

    assert exact_law(two)[True, False] == Fraction(1, 8)
    assert exact_law(lambda s: bool(one_of_its_own(s)[1] < 0.125))[True] == Fraction(1, 8)
    cut = ceil(Fraction(0.3) * FINE)
    got = exact_law(lambda s: torch.rand((), dtype=torch.float64).item() < 0.3)
    assert got[True] == Fraction(cut, FINE)


def test_torch_and_others_in_one_program():
    def program(seed):
        rng = default_rng(seed)
        first = rng.random() < 0.5
        return first, bool(one_of_its_own(seed)[0] < 0.25), random.random() < 0.125

    assert exact_law(program)[True, True, True] == Fraction(1, 64)


def test_equal_seeds_of_torch_give_equal_words():
    def program(seed):
        return bool(one_of_its_own(seed)[0] < 0.5), bool(one_of_its_own(seed)[0] < 0.25)

    assert exact_law(program) == {
        (True, True): Fraction(1, 4), (True, False): Fraction(1, 4), (False, False): Fraction(1, 2),
    }  # fmt: skip


kept = torch.Generator().manual_seed(3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: torch.rand((), generator=kept),
        lambda seed: (torch.default_generator.manual_seed(seed), torch.rand(()))[1],
    ],
)
def test_other_generators_of_torch_are_escapes(draw):
    got = measure_program(lambda seed: bool(draw(seed) < 0.5), 20_000, 1)
    assert got.escapes == [CHANGES]


# Streams.


def test_repeated_states_are_told():
    assert repeated_draws(lambda seed: list(default_rng(seed).random(4)), 0) == ""
    assert repeated_draws(lambda seed: held.random(4).tolist(), 0) == ""
    assert "call 2 starts from a generator state of call 1" in repeated_draws(
        lambda seed: default_rng(0).random(), 0
    )
    assert "drawn twice" in repeated_draws(
        lambda seed: [random.Random(seed).random() for _ in range(2)], 0
    )
    seeds = iter([1, 2, 1, 4, 5, 6])
    assert "call 3" in repeated_draws(lambda seed: np.random.RandomState(next(seeds)).randint(5), 0)


# Samplers.


class PythonChoices:
    """The reading of `choose` that draws with Python."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def __call__(self, weights, at=None):
        return self.random.choices(range(len(weights)), [float(w) for w in weights])[0]

    def flip(self, chance, at=None):
        return self.random.random() < float(chance)


class GlobalChoices:
    """The reading of `choose` that draws with NumPy's global state."""

    def __init__(self, seed):
        np.random.seed(seed)

    def __call__(self, weights, at=None):
        row = np.array([float(w) for w in weights])
        return int((np.cumsum(row) / row.sum() <= np.random.rand()).sum())

    def flip(self, chance, at=None):
        return np.random.rand() < float(chance)


def cases_of(rule, name="small"):
    fixture = next(f for f in fixtures(RULES[rule].shape, False) if f.name == name)
    return [fixture.case(d, rule) for d in fixture.drafts(RULES[rule].draft)]


@pytest.mark.parametrize("choices", [NumpyChoices, PythonChoices, GlobalChoices])
@pytest.mark.parametrize("rule", ["token", "rrs_without"])
def test_the_law_of_a_sampler_is_that_of_its_rule(choices, rule):
    subject = load(of_rule(rule, choices=choices))
    for case in cases_of(rule)[1:3]:
        got = measure_opaque(subject, case, 5_000, 1, probes=200, spread=200)
        wanted = law(lambda choose, case=case: RULES[rule].verify(case.root(), choose))
        wanted = {out: as_fraction(mass) for out, mass in wanted.items()}
        assert got.exact, got.escapes
        assert tv(got.law, wanted) < 1e-14 < band_of(case)


def test_a_fault_is_measured_as_it_is():
    from specref.faults import FAULTS

    fault = FAULTS["coin_reused"]
    subject = load(of_fault(fault, NumpyChoices))
    case = cases_of(fault.base)[2]
    got = measure_opaque(subject, case, 5_000, 1, probes=200, spread=200)
    wanted = law(lambda choose: fault.rule.verify(case.root(), choose))
    assert got.exact
    assert tv(got.law, {out: as_fraction(mass) for out, mass in wanted.items()}) < 1e-14


def test_two_rounds_in_one_program():
    half = {(): (0.5, 0.5), (0,): (0.25, 0.75), (1,): (0.625, 0.375)}
    fixture = Fixture("two tokens", half, {**half, (): (0.75, 0.25), (1,): (0.125, 0.875)}, 1)
    subject = load(of_rule("token", choices=NumpyChoices))

    def program(seed):
        choose, text = Drawn(seed), ()
        for number in range(2):
            root = subject.drafter(fixture.target, fixture.draft, fixture.shape, choose, text)
            case = fixture.case(flat(root), "token", text)
            text += subject.sample(case, 1, seed_of(seed, number))[0]
        return text

    got = measure_program(program, 20_000, 1, 200, 200)
    assert got.exact, got.escapes
    assert sum(got.law.values()) == 1
    assert tv(complete(got.law, fixture.target, 4), target_law(fixture.target, 4)) < 1e-14


def test_without_torch_nothing_asks_for_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert exact_law(lambda s: default_rng(s).random() < 0.5)[True] == Fraction(1, 2)
