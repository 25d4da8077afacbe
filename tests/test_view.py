"""How reports look. Snapshots are rewritten with SPECREF_SNAPSHOTS=write (see snapshot.py)."""

import re
from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from specref.gate import view
from specref.gate.report import CLAIMS, Finding
from tests import reports, snapshot

SNAPSHOTS = {f"report-{name}-{width}": (name, width) for name in reports.ALL for width in (80, 120)}

every_report = pytest.mark.parametrize("name", reports.ALL)


def shown(report, width=80):
    return view.plain(view.whole(report, width))


def block(finding, width=80):
    return view.plain(view.block(finding, width))


def table(finding, width=80):
    """Return the lines of the table of laws."""
    lines = list(view.block(finding, width))
    start = next(at for at, line in enumerate(lines) if "outcome" in line.plain)
    return [line.plain[10:].rstrip() for line in lines[start:]]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_report_looks_as_it_did(name):
    which, width = SNAPSHOTS[name]
    snapshot.check(name, shown(reports.ALL[which], width))


def test_no_snapshot_is_left_over():
    from tests import test_cli, test_explain, test_plugin

    modules = (test_cli, test_explain, test_plugin)
    names = {*SNAPSHOTS, *(name for module in modules for name in module.SNAPSHOTS)}
    assert snapshot.left_over(names) == []


@every_report
@pytest.mark.parametrize("width", [80, 97, 120, 400])
def test_no_line_is_wider_than_asked_but_commands_that_are_copied(name, width):
    for line in view.whole(reports.ALL[name], width):
        assert line.cell_len <= min(width, view.WIDE) or "specref replay" in line.plain


def test_a_narrow_terminal_gets_the_narrowest_layout():
    assert shown(reports.FAILED, 20) == shown(reports.FAILED, view.NARROW)


@every_report
def test_colour_adds_nothing_but_colour(name):
    console = Console(force_terminal=True, color_system="standard", width=80, highlight=False)
    with console.capture() as captured:
        for line in view.whole(reports.ALL[name], 80):
            console.print(line, soft_wrap=True)
    coloured = captured.get()
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == shown(reports.ALL[name]).split("\n")


@every_report
def test_only_subjects_bring_other_characters_than_ascii(name):
    report = replace(reports.ALL[name], name="plain")
    assert shown(report).isascii()


@every_report
def test_every_finding_has_a_line_and_every_failure_a_block(name):
    text = shown(reports.ALL[name])
    for finding in reports.ALL[name].findings:
        assert finding.id in text
    for finding in reports.ALL[name].failures:
        assert f"\nFAIL  {finding.id}  " in text


@every_report
def test_the_last_words_count_every_finding(name):
    report = reports.ALL[name]
    last = " ".join(view.plain(view.sentence(report)).split())
    assert last.startswith(report.verdict.upper())
    for verdict in {finding.verdict for finding in report.findings}:
        counts = re.findall(rf"(\d+) {verdict}\b", last)
        total = sum(finding.verdict == verdict for finding in report.findings)
        assert sum(map(int, counts)) == total


def test_two_findings_on_one_claim_are_told_apart_in_the_count():
    twice = reports.report(reports.FORBIDDEN, replace(reports.FORBIDDEN, severity="crash"))
    (line,) = view.sentence(twice, 120)
    assert line.plain == "FAIL  token: 1 claim in 2 findings, 2 fail (edge, crash)"


@pytest.mark.parametrize(
    ("tv", "text"),
    [(0.0, "TV 0"), (5.6e-08, "TV 5.6e-08"), (0.0833333, "TV 0.083"), (1.0, "TV 1"), (None, "")],
)
def test_a_tv_is_written_briefly(tv, text):
    (line,) = list(view.whole(reports.report(reports.law("joint", tv, "")), 80))[3:4]
    assert line.plain.split("measured law")[1].replace("numerics", "").strip() == text


def test_a_tv_by_samples_is_a_bound_but_not_for_a_failure():
    passed = Finding("joint", "token", "samples", "pass", tv=0.034)
    failed = replace(passed, verdict="fail")
    assert "TV <= 0.034" in shown(reports.report(passed))
    assert "TV 0.034" in shown(reports.report(failed))


def test_the_audited_bound_stands_beside_measured_laws_once():
    text = shown(reports.PASSED)
    assert text.count("bounds that by a TV of 1.4e-05") == 1
    assert "the audit bounds" not in shown(reports.SAMPLED)


def test_bounds_that_differ_are_told_by_rule():
    found = []
    for rule, bound in (("token", 0.003), ("match", 0.001)):
        found += [
            replace(reports.law("joint"), rule=rule),
            replace(reports.law("audit"), rule=rule),
        ]
        found[-1].bound, found[-1].tv = bound, None
    text = " ".join(shown(reports.report(*found)).split())
    assert "a TV of 0.003 on average (token)" in text
    assert "a TV of 0.001 on average (match)" in text


def test_impossible_outcomes_are_marked_and_their_small_counterparts_are_not():
    lines = table(reports.FORBIDDEN)
    marked = [line for line in lines if "<-" in line]
    assert [line.split("  ")[0] for line in marked] == ["(2, 0)", "(2, 1)"]
    assert all(line.endswith("<- impossible") for line in marked)


def test_rows_that_carry_the_deviation_are_marked():
    found = replace(
        reports.FORBIDDEN,
        expected={"(0,)": "1/2", "(1,)": "1/4", "(2,)": "1/4"},
        measured={"(0,)": "3/4", "(1,)": "1/4"},
    )
    assert table(found)[1:4] == [
        "(0,)     1/2       3/4       +0.25       <- too often",
        "(1,)     1/4       1/4       0",
        "(2,)     1/4       0         -0.25       <- never",
    ]


def test_a_long_list_of_outcomes_is_cut_and_says_by_how_much():
    masses = {f"({x},)": f"{x + 1}/5050" for x in range(100)}
    other = masses | {"(99,)": "1/5050", "(0,)": "100/5050"}
    text = block(replace(reports.FORBIDDEN, expected=masses, measured=other))
    assert "and 88 more outcomes, which add 0 to the TV" in text
    assert "(99,)" in text


def test_a_law_without_a_rule_is_shown_alone():
    text = block(replace(reports.FORBIDDEN, expected=None))
    assert "expected" not in text
    assert "(2, 0)   1/33554432" in text


@pytest.mark.parametrize(
    ("wanted", "got", "text"),
    [
        ({"(0,)": "1"}, {"(1,)": "1"}, ""),  # one token only: no question
        ({"(0, 0)": "1"}, {"(0, 1)": "1"}, "at token 2: TV 0 up to token 1, 1 with it"),
        ({"(0, 0)": "1"}, {"(1, 0)": "1"}, "at token 1: TV 1 with it"),
        ({"(0, 0)": "1"}, {"(0,)": "1"}, "at token 2: TV 0 up to token 1, 1 with it"),
        ({"(0, 0)": "1"}, {"(0, 0)": "1"}, ""),
        ({"(0, 0)": "1"}, {"crash: it": "1"}, ""),
        ({"(0, (1, 2))": "1"}, {"(0, (1, 1))": "1"}, ""),
    ],
)
def test_the_position_where_laws_part(wanted, got, text):
    shown = block(replace(reports.FORBIDDEN, expected=wanted, measured=got))
    found = re.search(r"part    (.*)", shown)
    assert (found.group(1) if found else "") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1/2", "1/2"),
        ("3/10", "3/10"),
        (0, "0"),
        (1, "1"),
        ("1/3", "1/3"),
        (F(3, 5) - F(1, 2**24), "0.59999996"),
        (F(1, 2**24), "5.9604645e-08"),
        (F(-5, 8), "-5/8"),
    ],
)
def test_numbers_of_a_case_are_short_and_tell_float32_neighbours_apart(value, text):
    (number,) = reports.row(value)
    assert view._Numbers().write(number) == text


@given(st.floats(0, 1, width=32))
def test_a_number_as_written_is_the_float32_that_is_meant(value):
    text = view._Numbers().write(value.hex())
    assert reports.float32(F(text)) == value


def test_logits_minus_infinity_and_nan_are_written():
    write = view._Numbers().write
    assert [write(float(x).hex()) for x in ("-inf", "nan")] == ["-inf", "nan"]


def test_what_a_subject_says_cannot_move_the_cursor():
    said = "first\nsecond\x1b[2J\x07 \u202e [bold]kept[/bold]"
    finding = replace(reports.FORBIDDEN, message=said, where=said)
    text = block(finding)
    assert "first second\\x1b[2J\\x07 \\u202e [bold]kept[/bold]" in text


def test_a_block_can_begin_with_its_message():
    first, *_ = view.block(reports.FORBIDDEN, 80, message_first=True)
    assert first.plain == reports.FORBIDDEN.message
    silent = replace(reports.FORBIDDEN, message="")
    first, *_ = view.block(silent, 80, message_first=True)
    assert first.plain == CLAIMS["support"]


def test_a_repeat_command_is_one_line_to_copy():
    text = block(reports.FORBIDDEN)
    assert f"repeat  {reports.FORBIDDEN.replay}" in text.splitlines()[-1]


def test_readers_are_told_how_to_get_replay_files_unless_they_have_them():
    hint = "To repeat one failure alone, add --specref-report DIR."
    one = reports.report(reports.FORBIDDEN)
    assert hint not in view.plain(view.whole(one, 80, "--specref-report"))
    other = reports.report(replace(reports.FORBIDDEN, replay=""))
    assert hint in view.plain(view.whole(other, 80, "--specref-report"))


def test_an_object_gets_no_hint_of_a_command_that_cannot_work():
    found = replace(reports.FORBIDDEN, replay="")
    text = view.plain(view.whole(reports.report(found, source="")))
    assert "To repeat one failure alone" not in text
    assert "specref.gate.replay(FILE, subject=...) repeats one." in " ".join(text.split())
