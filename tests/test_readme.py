"""README, GATE and POWER must be true: their code runs, their tables are those of the code."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

import specref
from specref import checker, cli
from specref.faults import FAULTS
from specref.gate import Report, check, runner
from specref.gate.certificate import certificate, dumped
from specref.rules import RULES

ROOT = Path(__file__).parent.parent
FRONT, GATE, POWER = (
    ROOT.joinpath(f"{name}.md").read_text(encoding="utf-8") for name in ("README", "GATE", "POWER")
)
TEXT = "\n".join((FRONT, GATE, POWER))
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def block(marker: str) -> str:
    return next(text for text in BLOCKS if marker in text)


def test_there_are_exactly_two_set_up_commands_and_each_is_one_line() -> None:
    commands = re.findall(r"^python3 -m venv .*$", FRONT, re.MULTILINE)
    assert [line.split("&& ")[-1] for line in commands] == [
        ".venv/bin/specref gate transformers",
        ".venv/bin/pytest",
    ]


def test_the_reference_block_runs() -> None:
    exec(block("import specref"), {})


@pytest.mark.parametrize("command", ["compare", "law"])
def test_the_tables_that_it_shows_are_printed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern = rf"^\$ specref ({command} .*)\n((?:.+\n)+?)```"
    (shown,) = re.findall(pattern, TEXT, re.MULTILINE)
    with pytest.raises(SystemExit) as left:
        cli.main(shlex.split(shown[0]))
    assert left.value.code == cli.PASS
    assert capsys.readouterr().out == shown[1]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Gate the sampler that it shows."""
    path = tmp_path_factory.mktemp("readme") / "my_sampler.py"
    path.write_text(block("my_sampler.py\nimport torch"), encoding="utf-8")
    return check(str(path))


def test_the_sampler_that_it_shows_passes(report: Report) -> None:
    assert report.verdict == "pass", [f.message for f in report.failures]
    assert report.escapes == []
    audit = next(f for f in report.findings if f.claim == "audit")
    assert audit.bound is not None
    assert audit.bound < 1e-3, "it draws row by row, so it is audited in batches"


def test_the_checker_says_of_its_certificate_what_is_shown(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(dumped(certificate(report)), encoding="utf-8")
    assert checker.main(str(path)) == 0
    assert "\n".join(capsys.readouterr().out.splitlines()[-2:]) in TEXT


def test_the_exchange_with_a_program_is_that_of_the_protocol() -> None:
    (shown,) = re.findall(r"```text\n(> .*?)```", TEXT, re.DOTALL)
    protocol = " ".join((runner.__doc__ or "").split())
    messages = re.split(r"^(?=[<>] )", shown, flags=re.MULTILINE)[1:]
    assert len(messages) == 4
    for message in messages:
        assert " ".join(message.split()) in protocol  # tests/test_runner.py sends it


def test_every_command_has_the_options_that_are_shown() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    lines = re.findall(r"^(?:.* && \S*)?specref (.*)$", TEXT, re.MULTILINE)
    shown = [words for line in lines if (words := shlex.split(line, comments=True))[0] in commands]
    assert {words[0] for words in shown} >= {"gate", "map", "replay"}
    for name, *words in shown:
        known = {option for param in commands[name].params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, name


def test_every_exit_code_is_told() -> None:
    told = [int(code) for code in re.findall(r"^\| (\d+) \| ", TEXT, re.MULTILINE)]
    codes = [cli.PASS, cli.FAIL, cli.INCONCLUSIVE, cli.USAGE, cli.INTERNAL, cli.INTERRUPTED]
    assert told == codes


def test_every_optional_name_of_a_subject_is_told() -> None:
    names = (
        "rules decide propose drafts shape time_limit generate models law seeded placeholders off"
    )
    for name in (*names.split(), "preset`, `parameters"):
        assert re.search(rf"^\| `{name}\b.*` \|", TEXT, re.MULTILINE), name


def test_every_rule_and_every_fault_is_in_its_tables() -> None:
    for names, text in ((RULES, FRONT), (FAULTS, POWER)):
        for name in names:
            assert re.search(rf"^\| `?{name}`? \|", text, re.MULTILINE), name
    assert f"{len(FAULTS)} faults, each refuted and named" in FRONT


def test_every_notebook_is_listed_with_its_question() -> None:
    for path in sorted(ROOT.joinpath("notebooks").glob("0*.ipynb")):
        title = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
        question = "".join(title).splitlines()[0].removeprefix("# ")
        row = f"| [{path.name[1]}](notebooks/{path.name}) | {question} |"
        assert row in FRONT.splitlines(), row


@pytest.mark.parametrize(
    "name",
    [
        "README", "GATE", "POWER", "CONTRIBUTING", "CONVENTIONS", "CHANGELOG",
        "notebooks/README", "gpu_impl/README", "proofs/README",
    ],
)  # fmt: skip
def test_every_link_leads_to_a_file(name: str) -> None:
    page = ROOT / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_how_to_cite_is_whole() -> None:
    entry = yaml.safe_load(ROOT.joinpath("CITATION.cff").read_text(encoding="utf-8"))
    assert entry["cff-version"] == "1.2.0"
    assert entry["version"] == specref.__version__
    assert {"message", "title", "authors", "license", "type"} <= entry.keys()
    for reference in entry["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()


def test_every_fault_is_named_in_the_power_table() -> None:
    table = POWER.split("<!-- power -->")[1]
    for name in FAULTS:
        row = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        assert row.split("|")[4].strip() == "yes", row
