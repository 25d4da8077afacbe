"""The notebooks run, print what is committed, and their exercises know right from wrong."""

import ast
import re

import pytest

import lesson
import run
from exercises import EXERCISES, check

NAMES = run.names()


def code(name: str) -> list[str]:
    return [cell.source for cell in run.read(name).cells if cell.cell_type == "code"]


def test_there_are_nine() -> None:
    assert [name[:2] for name in NAMES] == [f"{number:02}" for number in range(1, 10)]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_prints_what_is_committed(name: str) -> None:
    committed, again = run.read(name), run.executed(name)
    assert run.differences(committed, again) == []
    for book in (committed, again):
        shown = run.pictures(book)
        assert shown, "every notebook has a picture"
        for picture in shown:
            height, width, _ = picture.shape
            assert 300 <= width <= 1000, "legible at the width of a notebook"
            assert height <= 1000
            assert len({tuple(pixel) for pixel in picture.reshape(-1, 4)[::7]}) > 3, "not empty"


@pytest.mark.parametrize("name", NAMES)
def test_its_form(name: str) -> None:
    book = run.read(name)
    assert len(book.cells) < 25
    assert book.cells[0].cell_type == "markdown"
    assert re.match(r"# .*\?\n", book.cells[0].source + "\n"), "it asks one question"
    asked = [number for text in code(name) for number in re.findall(r'check\("(\d\.\d)"', text)]
    assert asked == [f"{int(name[:2])}.{number}" for number in (1, 2, 3)]
    assert not any(cell.metadata for cell in book.cells)
    counts = [cell.execution_count for cell in book.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "outputs of one run from the top"


@pytest.mark.parametrize("name", NAMES)
def test_it_uses_public_names_alone(name: str) -> None:
    for node in ast.walk(ast.parse("\n".join(re.sub(r"(?m)^[%!].*$", "", t) for t in code(name)))):
        words = {
            ast.Attribute: lambda n: [n.attr],
            ast.ImportFrom: lambda n: [*(n.module or "").split("."), *(a.name for a in n.names)],
            ast.Import: lambda n: [w for a in n.names for w in a.name.split(".")],
        }.get(type(node), lambda n: [])(node)
        for word in words:
            assert not word.startswith("_") or word.startswith("__"), word


def test_every_exercise_is_asked_and_every_asked_one_exists() -> None:
    cells = "\n".join(text for name in NAMES for text in code(name))
    asked = set(re.findall(r'check\("(.*?)"', cells))
    check("1.1", ...)  # reads all files of exercises
    assert asked == set(EXERCISES)


@pytest.mark.parametrize("number", [f"{book}.{at}" for book in range(1, 10) for at in (1, 2, 3)])
def test_an_exercise_takes_its_answer_and_refuses_wrong_ones(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(number, ...)
    assert capsys.readouterr().out == f"{number}: not answered yet\n"
    check(number, EXERCISES[number].answer)
    assert capsys.readouterr().out == f"{number}: right\n"
    assert EXERCISES[number].wrong
    for answer in (*EXERCISES[number].wrong, None, "no answer", lambda *given: None):
        check(number, answer)
        assert capsys.readouterr().out.startswith(f"{number}: not yet: "), answer


def test_a_difference_is_seen() -> None:
    book = run.read(NAMES[0])
    other = run.read(NAMES[0])
    cell = next(cell for cell in other.cells if cell.get("outputs"))
    cell.outputs[0] = run.nbformat.v4.new_output("stream", text="something else\n")
    assert any("+something else" in line for line in run.differences(book, other))


def test_an_unknown_notebook_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["77"])
    assert "no notebook begins with '77'; there are 01-" in capsys.readouterr().err


def test_a_slider_draws_first_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = pytest.importorskip("ipywidgets", reason="pip install ipywidgets")
    drawn: list[int] = []
    shown: list[object] = []

    def draw(gamma: int) -> None:
        drawn.append(gamma)

    monkeypatch.setattr(lesson, "display", shown.append)
    lesson.slider(draw, gamma=[4, 1, 2])
    (box,) = shown
    assert isinstance(box, widgets.interactive)
    (moved,) = (child for child in box.children if isinstance(child, widgets.SelectionSlider))
    assert (moved.options, moved.value) == ((1, 2, 4), 4)
    moved.value = 2
    assert drawn[-1] == 2
    monkeypatch.setenv("NOTEBOOK_STATIC", "1")
    lesson.slider(draw, gamma=[7, 1])
    assert drawn[-1] == 7
