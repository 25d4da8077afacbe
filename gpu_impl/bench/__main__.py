"""`python -m gpu_impl.bench`: the tables, the chart, and the script for a GPU."""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from gpu_impl.bench import cpu, growth
from gpu_impl.bench.contenders import plain_torch
from gpu_impl.bench.peers import peers
from gpu_impl.bench.rounds import FILTERED, PLAIN, chains, trees
from specref.cli.output import drawable_file, say, table, writable_file, writing

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[str | None, typer.Option("--json", help="Write everything to this file.")]
Threads = Annotated[int | None, typer.Option(help="Of torch; as many as it takes if left out.")]


@app.callback(invoke_without_command=True)
def compare(
    context: typer.Context,
    requests: Annotated[int, typer.Option(help="B.")] = 64,
    drafts: Annotated[int, typer.Option(help="K, drafted tokens of each request.")] = 4,
    vocab: Annotated[int, typer.Option(help="V.")] = 128_256,
    nodes: Annotated[int, typer.Option(help="Size of the trees, 16 requests at most.")] = 64,
    repeats: Annotated[int, typer.Option(help="Of each, interleaved.")] = 5,
    threads: Threads = None,
    json_file: Json = None,
) -> None:
    """Time rounds from raw logits to tokens on this CPU, beside the peers that are installed."""
    if context.invoked_subcommand is not None:
        return
    if json_file:
        writable_file("--json", json_file)
    if threads:
        torch.set_num_threads(threads)
    others, missing = peers()
    cases = [
        (chains(requests, drafts, vocab, asked=asked), asked) for asked in (PLAIN, FILTERED)
    ]  # fmt: skip
    tree = trees(min(requests, 16), nodes, vocab)
    got = cpu.report(cases, [*others, plain_torch()], repeats, tree) | {"missing": missing}
    _show(got)
    _write(got, json_file)


@app.command("growth")
def grow(
    chart: Annotated[str | None, typer.Option(help="Draw it, .svg or .png.")] = None,
    repeats: Annotated[int, typer.Option(help="Of each size.")] = 3,
    tiny: Annotated[bool, typer.Option("--tiny", help="Small sizes, to see that it runs.")] = False,
    threads: Threads = None,
    json_file: Json = None,
) -> None:
    """Show how cost grows with each size."""
    if chart:
        drawable_file("--chart", chart)
    if json_file:
        writable_file("--json", json_file)
    if threads:
        torch.set_num_threads(threads)
    others, missing = peers()
    sizes = {axis: values[:2] for axis, values in growth.SIZES.items()} if tiny else None
    base = {**growth.BASE, "B": 2, "V": 200} if tiny else growth.BASE
    if tiny:
        sizes = {**(sizes or {}), "V": (100, 200)}
    points = list(growth.measure([*others, plain_torch()], repeats, sizes, base))
    heads = ("size", "", "way", "ms", "tokens per request")
    table(
        heads,
        [
            (p.axis, f"{p.value:g}", p.name, f"{p.milliseconds:.3g}", f"{p.emitted:.2f}")
            for p in points
        ],
    )
    _write({"points": [p._asdict() for p in points], "missing": missing}, json_file)
    if chart:
        with writing("--chart", chart):
            growth.plot(points, chart)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def gpu(context: typer.Context) -> None:
    """Check and time the Triton backend; the options are those of gpu_impl.bench.gpu."""
    from gpu_impl.bench.gpu import main

    raise typer.Exit(main(context.args))


def _show(got: dict[str, Any]) -> None:
    machine = got["machine"]
    say(
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, copies "
        f"{machine['copy_bytes_per_second'] / 1e9:.1f} GB/s; medians of {got['repeats']}"
    )
    for case in got["cases"]:
        asked = case["asked"]["name"]
        say(f"\nB={case['requests']} K={case['drafts']} V={case['vocab']} {case['dtype']}, {asked}")
        table(
            ("way", "draft rows", "ms", "best", "ratio", "busy ms", "busy ratio", "tokens",
             "floor MB", "share"),
            [
                (
                    row["name"], "read" if row["drafts_read"] else "known",
                    f"{row['milliseconds']:.1f}", f"{row['best']:.1f}", f"{row['ratio']:.2f}",
                    f"{row['busy']:.1f}", f"{row['busy_ratio']:.2f}",
                    f"{row['emitted']:.2f}",
                    f"{row['floor']['lazy'] / 1e6:.1f} {row['floor']['eager'] / 1e6:.1f}",
                    f"{row['share']:.2f}",
                )
                for row in case["rows"]
            ],
        )  # fmt: skip
    if tree := got["tree"]:
        say(
            f"\ntrees of {tree['nodes']} nodes: {tree['milliseconds']:.1f} ms, their paths alone "
            f"{tree['path']:.1f} ms, ratio {tree['ratio']:.2f}, busy ratio "
            f"{tree['busy_ratio']:.2f}, {tree['emitted']:.2f} tokens"
        )
    for name, why in got["missing"].items():
        say(f"without {name}: {why}")


def _write(got: dict[str, Any], file: str | None) -> None:
    if file:
        with writing("--json", file):
            Path(file).write_text(json.dumps(got, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app(prog_name="python -m gpu_impl.bench")
