"""The decision map: areas that are masses, orientations, and a picture that is always the same."""

from fractions import Fraction
from itertools import combinations

import pytest

from specref import cli
from specref.choice import law
from specref.dist import as_fraction
from specref.faults import FAULTS
from specref.gate.cell import Cell
from specref.gate.errors import UsageError
from specref.gate.map import Region, area, decision_map, regions, save
from specref.gate.variable import Draw, Pick
from specref.rules import RULES
from specref.subjects.programs import NumpyChoices, Program, TorchChoices

TINY = Fraction(1, 10**12)  # float64 in the samplers below, against fractions


def program(name, choices=TorchChoices):
    entry = RULES[name] if name in RULES else FAULTS[name]
    base = entry if name in RULES else RULES[entry.base]
    return Program(name, (base.name,), entry.verify, base.draft, base.shape, choices)


def mass(found, outcome):
    return area([region for region in found if region.outcome == outcome])


def tiles(found):
    assert area(found) == 1
    return not any(a.overlap(b) for a, b in combinations(found, 2))


# Areas are masses.


GATED = [name for name, rule in RULES.items() if not rule.off_path]


@pytest.mark.parametrize("name", [name for name in GATED if RULES[name].shape == "chain"])
def test_the_reference_tiles_the_square_with_its_law(name):
    found = decision_map(program(name))
    rule, root = RULES[name], found.case.root()
    assert tiles(found.reference)
    for outcome, chance in law(lambda choose: rule.verify(root, choose)).items():
        assert mass(found.reference, outcome) == as_fraction(chance)


@pytest.mark.parametrize("name", GATED)
def test_an_honest_sampler_has_the_regions_of_its_rule(name):
    found = decision_map(program(name))
    assert tiles(found.subject)
    assert found.tv < TINY
    assert area(found.differing) < TINY
    assert (found.coin, found.terminal) == ("coin", "terminal draw")


def test_the_conventions_are_those_of_the_reference():
    """Accept iff u < chance; the terminal draw is read off the running sum in token order."""
    found = decision_map(program("token"))
    accepted = [r for r in found.reference if len(r.outcome) == 2]
    assert {r.x for r in accepted} == {(0, Fraction(1, 5))}
    refused = sorted((r for r in found.reference if len(r.outcome) == 1), key=lambda r: r.y)
    assert [(r.outcome, r.y) for r in refused] == [
        ((0,), (0, Fraction(3, 4))),
        ((1,), (Fraction(3, 4), 1)),
    ]


@pytest.mark.parametrize("name", ["residual_is_target", "everything_accepted", "bonus_from_draft"])
def test_a_fault_is_where_outcomes_differ(name):
    found = decision_map(program(name))
    fault, root = FAULTS[name], found.case.root()
    for outcome, chance in law(lambda choose: fault.verify(root, choose)).items():
        assert abs(mass(found.subject, outcome) - as_fraction(chance)) < TINY
    assert Fraction(1, 10) < found.tv <= area(found.differing)


def test_the_residual_that_is_the_target_differs_on_the_areas_between():
    found = decision_map(program("residual_is_target"))
    strips = [r for r in found.differing if r.area > TINY]
    assert {r.outcome for r in strips} == {(1,), (2,)}
    assert abs(area(strips) - Fraction(4, 5) * (Fraction(1, 4) + Fraction(1, 8))) < TINY


class Turned:
    """Draws 1 - u as its coin, after the terminal draw, and accepts too often in a thin strip."""

    name, rules = "turned", ("token",)

    def sample(self, case, n, seed):
        import torch

        p, q, x = case.tensors(n)
        generator = torch.Generator().manual_seed(seed)
        out = torch.full((n, 2), -1)
        for row in range(n):
            terminal, u = torch.rand(1, generator=generator), torch.rand(1, generator=generator)
            coin, drafted = 1 - u, x[row, 0]
            strip = (coin > 0.5) & (coin < 0.503)
            accepts = bool((coin * q[row, 0, drafted] < p[row, 0, drafted]) | strip)
            weights = p[row, 1] if accepts else (p[row, 0] - q[row, 0]).clamp(min=0)
            sums = (weights / weights.sum()).cumsum(0)
            y = int(torch.searchsorted(sums, terminal, right=True).clamp(max=2))
            out[row, : 1 + accepts] = torch.tensor([drafted, y] if accepts else [y])
        return out


def test_a_thin_strip_is_found_whichever_way_the_draws_are_used():
    found = decision_map(Turned())
    assert (found.coin, found.terminal) == ("1 - coin", "terminal draw")
    strips = [r for r in found.differing if r.area > Fraction(1, 10**6)]
    assert abs(area(strips) - Fraction(3, 1000)) < Fraction(1, 10**6)
    assert all(
        abs(float(r.x[0]) - 0.5) < 1e-6 and abs(float(r.x[1]) - 0.503) < 1e-6 for r in strips
    )


def test_regions_are_learned_where_the_tape_cannot_follow():
    found = decision_map(program("residual_is_target", NumpyChoices))
    assert tiles(found.subject)
    assert 0 < found.missed < 0.1
    assert abs(found.tv - Fraction(1, 5)) < TINY


# What cannot be drawn.


def cell(*sides):
    """Return a cell of sides (variable, low, high)."""
    box = tuple((low, high) for _, low, high in sides)
    return Cell(box, (0,), Fraction(1), (), tuple(variable for variable, _, _ in sides))


def test_an_index_stands_at_its_place_in_the_running_sum():
    coin, pick = Draw(4), Pick((Fraction(1, 4), Fraction(0), Fraction(3, 4)))
    found = regions(
        [cell((coin, 0, 1)), cell((coin, 1, 4), (pick, 0, 1)), cell((coin, 1, 4), (pick, 2, 3))]
    )
    quarter = Fraction(1, 4)
    assert [(r.x, r.y) for r in found] == [
        ((0, quarter), (0, 1)), ((quarter, 1), (0, quarter)), ((quarter, 1), (quarter, 1)),
    ]  # fmt: skip


def test_draws_that_change_nothing_are_no_axes():
    noise, coin = Draw(7), Draw(2)
    found = regions([cell((noise, 0, 7), (coin, 0, 1)), cell((noise, 0, 7), (coin, 1, 2))])
    assert [r.x for r in found] == [(0, Fraction(1, 2)), (Fraction(1, 2), 1)]


def test_a_third_draw_is_refused():
    coin = Draw(2)
    with pytest.raises(UsageError, match="more than two draws"):
        regions([cell((coin, 0, 1), (coin, 0, 1), (coin, 0, 1))])
    with pytest.raises(UsageError, match="do not tile"):
        regions([cell((coin, 0, 1), (coin, 0, 1)), cell((coin, 0, 1), (coin, 0, 2), (coin, 0, 1))])


def test_an_overlap_is_what_two_regions_share():
    one = Region((Fraction(0), Fraction(1)), (Fraction(0), Fraction(1, 2)), (0,))
    other = Region((Fraction(1, 4), Fraction(1)), (Fraction(1, 4), Fraction(1)), (1,))
    shared = one.overlap(other)
    assert shared is not None
    assert (shared.area, shared.outcome) == (Fraction(3, 16), (0,))
    beside = Region(one.x, (Fraction(1, 2), Fraction(1)), (1,))
    assert one.overlap(beside) is None


def test_a_law_that_cannot_be_read_is_refused():
    class Clock:
        name, rules = "clock", ("token",)

        def sample(self, case, n, seed):
            import os

            return [[os.urandom(1)[0] % 3, -1] for _ in range(n)]

    with pytest.raises(UsageError, match="the law of clock cannot be read"):
        decision_map(Clock())


# The picture.


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_map_gives_the_same_bytes(kind, tmp_path):
    pytest.importorskip("matplotlib")
    found = decision_map(program("residual_is_target"))
    files = [tmp_path / f"{at}.{kind}" for at in range(2)]
    for file in files:
        save(found, file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert len(first) < 100_000


def test_the_picture_says_what_is_in_it(tmp_path):
    pytest.importorskip("matplotlib")
    save(decision_map(Turned()), tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    for words in (
        "the rule token",
        "turned",
        "1 - coin",
        "Token 2 is drafted",
        "refuses 2,",
        "0 instead",
    ):
        assert words in text


def test_the_command_draws(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    loaded = load_program()
    monkeypatch.setattr("specref.gate.loading.load", lambda spec: loaded)
    with pytest.raises(SystemExit) as ended:
        cli.main(["map", "anything", "--out", "map.svg"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert out == (
        "map.svg: residual_is_target against token, TV 0.2 on one drafted token;\n"
        "outcomes differ on 0.3 of all draws\n"
    )
    assert (tmp_path / "map.svg").exists()


def load_program():
    from specref.gate.loading import load

    return load(program("residual_is_target"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["map", "transformers", "--out", "map.jpg"], "does not end in .svg or .png"),
        (["map", "transformers", "--out", "absent/map.svg"], "--out absent/map.svg"),
        (["map", "nothing_of_the_kind", "--out", "map.svg"], "nothing_of_the_kind"),
    ],
)
def test_what_cannot_be_drawn_is_refused(args, said, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(args)
    assert ended.value.code == 3
    assert said in capsys.readouterr().err
