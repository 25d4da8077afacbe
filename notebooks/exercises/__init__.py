"""The exercises of the notebooks, with their answers: look here when you are stuck.

One file per notebook. An exercise says whether an answer is right, and if not, on what it fails;
its own answer, and some wrong ones, are what `test_notebooks.py` holds it to.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

Judge = Callable[[Any], str | None]
"""Says what is wrong with an answer, or None if it is right."""


class Exercise(NamedTuple):
    """One exercise: `judge` says what is wrong with an answer, `answer` is a right one."""

    judge: Judge
    answer: Any
    wrong: tuple[Any, ...]


EXERCISES: dict[str, Exercise] = {}
"""All of them, by number: "3.2" is the second of notebook 3."""


def exercise(number: str, *, answer: Any, wrong: Iterable[Any]) -> Callable[[Judge], Judge]:
    """Enter an exercise under its number."""

    def enter(judge: Judge) -> Judge:
        EXERCISES[number] = Exercise(judge, answer, tuple(wrong))
        return judge

    return enter


def check(number: str, answer: Any) -> None:
    """Say whether an answer is right; `...` is no answer yet.

    An answer is a value or a function, as the exercise asks. What it raises is told.

    >>> check("1.1", ...)
    1.1: not answered yet
    >>> check("9.9", 0)
    Traceback (most recent call last):
    ...
    ValueError: there is no exercise '9.9'; exercises are numbered from 1.1 to 9.3
    """
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    if number not in EXERCISES:
        first, last = min(EXERCISES), max(EXERCISES)
        raise ValueError(
            f"there is no exercise {number!r}; exercises are numbered from {first} to {last}"
        )
    if answer is ...:
        print(f"{number}: not answered yet")
        return
    try:
        fault = EXERCISES[number].judge(answer)
    except ValueError as error:  # mostly a value that is none: it says so
        fault = str(error)
    except Exception as error:  # whatever a reader's function raises
        fault = f"it raised {type(error).__name__}: {error}"
    print(f"{number}: {'right' if fault is None else 'not yet: ' + fault}")
