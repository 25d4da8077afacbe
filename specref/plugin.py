"""The pytest plugin: options, and a few words. Where no test uses the gate, nothing is imported."""

import argparse
import sys
from typing import Any

import pytest

SEEDS = 1 << 31


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the gate."""
    group = parser.getgroup("specref", "speculative samplers held to their claims (specref)")
    group.addoption(
        "--specref-profile", metavar="NAME", help="budget of the gate: quick (default) or ci"
    )
    group.addoption(
        "--specref-seed",
        metavar="N",
        type=_seed,
        help="seed of the gate's own draws (default 0), or fresh for a new one",
    )
    group.addoption(
        "--specref-report",
        metavar="DIR",
        help="write report.json and a replay file per failure there; several subjects get a "
        "directory each",
    )


def _seed(text: str) -> int | str:
    if text == "fresh":
        return text
    if not text.isdecimal() or int(text) >= SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither fresh nor 0 <= N < {SEEDS}")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options that were given, and draw the seed where a fresh one is wanted."""
    profile = config.getoption("specref_profile")
    if profile is not None:
        from specref.gate.run import PROFILES

        if profile not in PROFILES:
            known = ", ".join(PROFILES)
            raise pytest.UsageError(f"--specref-profile {profile} is unknown; profiles: {known}")
    if config.getoption("specref_seed") == "fresh":
        from secrets import randbelow

        given = getattr(config, "workerinput", {})  # of a worker of pytest-xdist
        config.option.specref_seed = given.get("specref_seed", randbelow(SEEDS))
        config.option.specref_fresh = True


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the fresh seed: all of them gate with the same."""
    if _fresh(node.config):
        node.workerinput["specref_seed"] = node.config.option.specref_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which seed was drawn."""
    return _fresh(config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which seed was drawn and where reports are, if the gate ran."""
    used = sys.modules.get("specref.gate.suite")
    if used is None or not config.stash.get(used.REPORTS, None):
        return
    place = config.getoption("specref_report")
    words = [_fresh(config), f"specref: report in {place}" if place else None]
    for line in filter(None, words):
        terminalreporter.write_line(line)


def _fresh(config: pytest.Config) -> str | None:
    if not getattr(config.option, "specref_fresh", False):
        return None
    seed = config.getoption("specref_seed")
    return f"specref: fresh seed {seed}; repeat with --specref-seed {seed}"
