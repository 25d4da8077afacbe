"""The README must be true: its code runs, its tables are those of the code."""

import re
from pathlib import Path

from specref.faults import FAULTS
from specref.gate import check
from specref.gate.report import CLAIMS
from specref.rules import RULES

TEXT = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def block(marker: str) -> str:
    return next(text for text in BLOCKS if marker in text)


def test_there_are_exactly_two_set_up_commands_and_each_is_one_line() -> None:
    commands = re.findall(r"^python3 -m venv .*$", TEXT, re.MULTILINE)
    assert [line.split("&& ")[-1] for line in commands] == [
        ".venv/bin/specref gate transformers",
        ".venv/bin/pytest",
    ]


def test_the_reference_block_runs() -> None:
    exec(block("import specref"), {})


def test_the_sampler_that_it_shows_passes(tmp_path: Path) -> None:
    path = tmp_path / "my_sampler.py"
    path.write_text(block("my_sampler.py\nimport torch"), encoding="utf-8")
    report = check(str(path))
    assert report.verdict == "pass", [f.message for f in report.failures]
    assert report.escapes == []
    audit = next(f for f in report.findings if f.claim == "audit")
    assert audit.bound is not None
    assert audit.bound < 1e-4, "it draws row by row, so it is audited in batches"


def test_every_rule_and_every_fault_is_in_its_tables() -> None:
    for name in (*RULES, *FAULTS):
        assert re.search(rf"^\| `?{name}`? \|", TEXT, re.MULTILINE), name


def test_every_fault_is_named_in_the_power_table() -> None:
    table = TEXT.split("<!-- power -->")[1]
    for name in FAULTS:
        row = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        assert row.split("|")[4].strip() == "yes", row


def test_the_claims_of_the_report_are_ten() -> None:
    assert len(CLAIMS) == 10
