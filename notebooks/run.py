"""Run the notebooks and compare what they print with what is committed.

    python notebooks/run.py                    all of them
    python notebooks/run.py 01 07              some, by the beginnings of their names
    python notebooks/run.py --write 01         keep the new outputs

Texts and tables must be the same. Pictures are drawn again, and must not be empty, but are not
compared: their bytes change with the version of matplotlib.
"""

import argparse
import base64
import difflib
import io
import os
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parent
LIMIT = 300  # seconds for one cell; on a plain CPU, a whole notebook takes under 60


def names() -> list[str]:
    """Return the names of all notebooks, in their order."""
    return sorted(path.stem for path in FOLDER.glob("[0-9][0-9]-*.ipynb"))


def read(name: str) -> Any:
    """Return a notebook as it is committed."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def executed(name: str) -> Any:
    """Return a notebook with the outputs of a run from an empty kernel.

    Raises:
        CellExecutionError: a cell raised.
    """
    book = read(name)
    before = {key: os.environ.get(key) for key in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        client = NotebookClient(
            book,
            timeout=LIMIT,
            kernel_name="python3",
            resources={"metadata": {"path": str(FOLDER)}},
            extra_arguments=["--log-level=ERROR"],
        )
        client.execute()
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
    return _tidied(book)


_ENVIRONMENT = {
    "NOTEBOOK_STATIC": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else the kernel may warn of frozen modules
    "OMP_NUM_THREADS": "1",  # sums of floats in one order
}


def _tidied(book: Any) -> Any:
    """Drop what changes from run to run: times, counts of earlier runs, versions of Python."""
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(book.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_plain(output) for output in _joined(cell.outputs)]
    return book


def _joined(outputs: list[Any]) -> list[Any]:
    """Join pieces of one stream, which are cut where the kernel happened to flush."""
    joined: list[Any] = []
    for output in outputs:
        if (
            joined
            and output.output_type == "stream" == joined[-1].output_type
            and output.name == joined[-1].name
        ):
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _plain(output: Any) -> Any:
    if "metadata" in output:
        output.metadata = {}
    if {"image/png", "text/markdown"} & set(output.get("data", ())):
        output.data.pop("text/plain", None)  # "<Figure size ...>": for readers without pictures
    return output


def texts(book: Any) -> list[str]:
    """Return what every code cell prints and shows, pictures as "[picture]"."""
    return [
        "\n".join(_text(output) for output in _joined(cell.outputs))
        for cell in book.cells
        if cell.cell_type == "code"
    ]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    if "image/png" in output.data:
        return "[picture]"
    return str(output.data.get("text/markdown", output.data.get("text/plain")))


def pictures(book: Any) -> list[Any]:
    """Return all pictures, as arrays of pixels [height, width, 4]."""
    return [
        matplotlib.image.imread(io.BytesIO(base64.b64decode(output.data["image/png"])))
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "image/png" in output.get("data", ())
    ]


def differences(committed: Any, run: Any) -> list[str]:
    """Return the lines in which two runs of a notebook differ, none if they are the same."""
    cells = zip(texts(committed), texts(run), strict=True)
    return [
        f"code cell {number}: {line}"
        for number, (old, new) in enumerate(cells, 1)
        for line in difflib.unified_diff(
            old.splitlines(), new.splitlines(), "committed", "run", lineterm="", n=1
        )
    ]


def main(arguments: list[str]) -> int:
    """Run the notebooks that are asked for; return 1 if one raises or prints something else."""
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01; all if left out")
    parser.add_argument("--write", action="store_true", help="keep the new outputs")
    asked = parser.parse_args(arguments)
    chosen = [name for name in names() if not asked.names or name.startswith(tuple(asked.names))]
    for start in asked.names:
        if not any(name.startswith(start) for name in chosen):
            parser.error(f"no notebook begins with {start!r}; there are {', '.join(names())}")
    code = 0
    for name in chosen:
        try:
            run = executed(name)
        except CellExecutionError as error:
            print(f"{name}: raised\n{error}")
            code = 1
            continue
        changed = differences(read(name), run)
        if asked.write:
            nbformat.write(run, FOLDER / f"{name}.ipynb")
        elif changed:
            code = 1
        told = "the same" if not changed else "written" if asked.write else "differs"
        print("\n".join([f"{name}: {told}", *changed]))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
