"""The benchmark, end to end on tiny sizes: everybody does the whole round, and sums are right."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from gpu_impl import verify
from gpu_impl.bench import cpu, gpu_checks, growth, kernels, peers, plain, timing
from gpu_impl.bench.__main__ import app
from gpu_impl.bench.contenders import Contender, ours, plain_torch
from gpu_impl.bench.rounds import FILTERED, PLAIN, Asked, chains, trees
from gpu_impl.bench.timing import Timed
from specref.logits import Parameters as Exact
from specref.logits import law
from specref.logits.row import Enclosure

ROOT = Path(__file__).resolve().parents[1]
README = ROOT.joinpath("gpu_impl/README.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def everybody():
    found, _ = peers.peers()
    return [
        ours(), ours("eager", lazy=False), ours("known", known=True), plain_torch(), *found,
    ]  # fmt: skip


@pytest.mark.parametrize("asked", [PLAIN, FILTERED], ids=lambda asked: asked.name)
def test_everybody_does_the_whole_round(asked):
    alike = chains(3, 2, 100, asked=replace(asked, top_k=0, top_p=1), apart=0)
    apart = chains(3, 2, 100, asked=asked, apart=30)
    for contender in everybody():
        # Where p is q, all is accepted; where they have nothing in common, next to nothing.
        if not asked.filters:
            counts = contender.prepare(alike, asked)(0)
            assert counts.tolist() == [3, 3, 3], contender.name
        counts = torch.stack([contender.prepare(apart, asked)(repeat) for repeat in range(3)])
        assert counts.shape == (3, 3), contender.name
        assert int(counts.min()) >= 1, contender.name
        assert float(counts.double().mean()) < 2.5, contender.name


def test_ways_of_ours_are_one_round():
    batch = chains(5, 3, 300)
    counts = [each.prepare(batch, FILTERED)(4) for each in everybody()[:3]]
    assert torch.equal(counts[0], counts[1])
    assert torch.equal(counts[0], counts[2])


def test_plain_laws_and_those_of_the_sorted_filters_are_exact():
    rows = torch.randn(6, 12, generator=torch.Generator().manual_seed(3)) * 2
    for asked in (PLAIN, FILTERED, Asked("", 1.5, 4), Asked("", 0.5, 0, 0.6), Asked("", 1, 5, 0.8)):
        got = plain.laws(rows, asked)
        top_k = torch.full((6,), asked.top_k or 12)
        kept = peers.filtered(
            rows / asked.temperature, top_k.clamp(max=12) if asked.top_k else None,
            torch.full((6,), asked.top_p) if asked.top_p < 1 else None,
        )  # fmt: skip
        exact = Exact(
            temperature=str(asked.temperature), top_k=asked.top_k or None, top_p=str(asked.top_p)
        )
        for row, mine, theirs in zip(rows, got, kept.softmax(1), strict=True):
            wanted = law(row.tolist(), exact, "transformers")
            wanted = wanted.inside() if isinstance(wanted, Enclosure) else wanted
            wanted = torch.tensor([float(w) for w in wanted])
            assert torch.equal(mine > 0, wanted > 0)
            assert torch.equal(theirs > 0, wanted > 0)
            # A sum of 12 float32 numbers, and one division.
            assert float((mine - wanted).abs().max()) <= 14 * 2.0**-23


def test_plain_torch_accepts_what_the_law_says():
    batch = chains(200, 1, 30, apart=2)
    p, q = (rows.double().softmax(1) for rows in (batch.target[::2], batch.draft))
    x = batch.tokens[1::2, None]
    chance = (p.gather(1, x) / q.gather(1, x)).clamp(max=1)[:, 0]
    torch.manual_seed(0)
    n = 200
    accepted = sum(plain.sample(batch, PLAIN)[1] - 1 for _ in range(n)).double()
    off = accepted.sum() - n * chance.sum()
    # 6 deviations of a sum of independent coins.
    assert abs(float(off)) <= 6 * float((n * chance * (1 - chance)).sum().sqrt())


def test_trees_are_what_verify_takes():
    batch = trees(2, 9, 50, width=3)
    out = verify(
        batch.target, batch.tokens, batch.begin, draws=batch.seeds(), parents=batch.parents,
        rule="target_only",
    )  # fmt: skip
    assert not out.status.any()
    siblings = batch.tokens.view(2, 9)[:, 1:4]
    best = batch.draft.view(2, 9, 50)[:, 0].topk(3).indices
    assert torch.equal(siblings, best)


def test_a_tree_and_its_path_emit_the_same():
    batch = trees(4, 16, 200)
    out = verify(
        batch.target, batch.tokens, batch.begin, draws=batch.seeds(), parents=batch.parents,
        rule="target_only", trace=True,
    )  # fmt: skip
    assert int(out.counts.max()) > 1
    path = cpu.along(batch, out, cpu.parameters(PLAIN))
    assert torch.equal(path(0), out.counts)
    got = cpu.tree_and_path(batch, 1)
    assert got.nodes == 16
    assert got.emitted == float(out.counts.double().mean())


def test_ratios_are_of_pairs_and_medians_of_repeats():
    slow, fast = Timed((4.0, 9.0, 2.0), 1), Timed((2.0, 3.0, 2.0), 1)
    assert slow.median == 4
    assert slow.ratio(fast) == 2
    seen = []

    def run(name):
        return lambda repeat: seen.append((name, repeat)) or torch.tensor([repeat, repeat + 2])

    got = timing.interleaved({"a": run("a"), "b": run("b")}, 2)
    assert seen == [(name, repeat) for repeat in range(3) for name in "ab"]
    assert got["a"].emitted == 2.5
    assert len(got["b"].seconds) == 2


def test_floors_count_rows():
    batch = chains(2, 3, 10, dtype=torch.bfloat16)
    row = 2 * 10
    # 2 requests with 2.5 tokens each: so many target rows, and as many draft rows.
    read = timing.floor(batch, 2.5, drafts_read=True)
    assert read == (2 * row * (2.5 + 2.5), 2 * row * (4 + 3))
    known = timing.floor(batch, 2.5, drafts_read=False)
    assert known == (2 * row * (2.5 + 1), 2 * row * (4 + 1))
    # A bonus row has no draft row.
    assert timing.floor(batch, 4, drafts_read=True).lazy == 2 * row * (4 + 3)


def test_rows_are_compared_with_ours_of_the_same_kind():
    def fixed(name, read):
        return Contender(name, lambda batch, asked: lambda repeat: torch.ones(2), read)

    ways = [fixed("a", True), fixed("b", False), fixed("c", False)]
    rows = cpu.compare(chains(2, 1, 20), PLAIN, ways, 3, 1e9)
    assert [row.name for row in rows] == ["a", "b", "c"]
    assert rows[0].ratio == rows[1].ratio == 1
    assert rows[2].ratio > 0
    assert {row.emitted for row in rows} == {1.0}


def test_the_command_writes_what_it_shows(tmp_path):
    file = tmp_path / "out.json"
    words = "--requests 2 --drafts 1 --vocab 60 --nodes 5 --repeats 1 --threads 1 --json"
    result = CliRunner().invoke(app, [*words.split(), str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    got = json.loads(file.read_text())
    assert [case["asked"]["name"] for case in got["cases"]] == [PLAIN.name, FILTERED.name]
    for row in got["cases"][0]["rows"]:
        assert row["name"] in result.output
    assert "trees of 5 nodes" in result.output


def test_the_chart_is_drawn(tmp_path):
    chart, file = tmp_path / "chart.svg", tmp_path / "growth.json"
    words = ["growth", "--tiny", "--repeats", "1", "--chart", str(chart), "--json", str(file)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    text = chart.read_text()
    for label in growth.LABELS.values():
        assert label in text
    axes = {point["axis"] for point in json.loads(file.read_text())["points"]}
    assert axes == set(growth.SIZES)


def test_a_check_that_fails_is_told_and_the_others_go_on(monkeypatch):
    def breaks(device, tiny):
        raise AssertionError("3 of 4 rounds differ")

    def needs(device, tiny):
        raise gpu_checks.Skip("needs a device")

    checks = {"one": breaks, "two": needs, "three": lambda device, tiny: "fine"}
    monkeypatch.setattr(gpu_checks, "CHECKS", checks)
    got = list(gpu_checks.run("cpu", True))
    assert [result["verdict"] for result in got] == ["FAIL", "skipped", "ok"]
    assert got[0]["note"] == "AssertionError: 3 of 4 rounds differ"


def test_kernels_that_are_not_there_are_named_with_the_reason(monkeypatch):
    def gone(name):
        raise PackageNotFoundError(name)

    # As if nothing were installed: triton, once loaded, would not be interpreted in other tests.
    monkeypatch.setattr(kernels, "distribution", gone)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found, missing = kernels.kernels()
    assert found == []
    assert list(missing) == ["vllm", "sglang", "flashinfer"]
    assert missing["flashinfer"] == "RuntimeError: it needs a GPU"
    assert all(name in missing[name] for name in ("vllm", "sglang"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_check_holds_on_a_device():
    told = list(gpu_checks.run("cuda", tiny=False))
    assert [check for check in told if check["verdict"] == "FAIL"] == []


def test_the_script_for_a_gpu_runs_in_the_interpreter(tmp_path):
    if find_spec("triton") is None:
        pytest.skip("triton is not installed; pip install 'specref[gpu]'")
    file = tmp_path / "gpu.json"
    subprocess.run(
        [sys.executable, "-m", "gpu_impl.bench", "gpu", "--tiny", "--json", str(file)],
        check=True, capture_output=True, cwd=ROOT,
    )  # fmt: skip
    got = json.loads(file.read_text())
    verdicts = {result["check"]: result["verdict"] for result in got["checks"]}
    assert list(verdicts) == list(gpu_checks.CHECKS)
    assert set(verdicts.values()) == {"ok", "skipped"}
    assert {"lazy", "plain torch"} <= {row["way"] for row in got["times"]}
    assert not [row for row in got["times"] if "broken" in row]


# The README


def test_the_example_of_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (example,) = (text for text in blocks if "import torch" in text)
    exec(example, {})
    shown = re.findall(r"^# (.*)$", example.split("print", 1)[1], re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == shown


def test_the_replacements_that_the_readme_shows_exist():
    lines = re.findall(r"from (gpu_impl\.adapters\.\w+) import (\w+)", README)
    assert len(lines) == 6
    for module, name in lines:
        assert callable(getattr(import_module(module), name))


def test_the_readme_names_every_rule_status_and_option():
    from inspect import signature

    from gpu_impl import RULES, Status

    for name in (*RULES, *(bit.name for bit in Status), *signature(verify).parameters):
        assert f"`{name}`" in README, name
