"""The application, and its exit codes."""

from typing import Annotated

import typer

from specref import __version__
from specref.cli.output import say

PASS, FAIL, INCONCLUSIVE, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 70, 130
CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE}

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Exact reference for speculative decoding, and the gate that holds samplers to it.\n\n"
    "Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 usage.",
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"specref {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass
