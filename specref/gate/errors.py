"""What the gate refuses, and how it helps with names that it does not know."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from specref.rules import RULES


class UsageError(Exception):
    """Something was asked for that does not exist or cannot be done; the message names the cure."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (nearest: ...)" for a name that is not known, "" if none is near.

    >>> nearest("tokn", ["token", "match"])
    ' (nearest: token)'
    """
    found = get_close_matches(name, list(known), 3, cutoff=0.4)
    return f" (nearest: {', '.join(found)})" if found else ""


def known_rule(rule: Any) -> str:
    """Return the name of a rule that exists, or raise with the nearest names."""
    if not isinstance(rule, str) or rule not in RULES:
        raise UsageError(
            f"there is no rule {rule!r}{nearest(str(rule), RULES)}; rules: {', '.join(RULES)}"
        )
    return rule


def gated_rule(rule: Any) -> str:
    """Return the name of a rule that a sampler can be held to, or raise with the cure."""
    name = known_rule(rule)
    if RULES[name].off_path:
        raise UsageError(
            f"{name} calls the models behind tokens that were not drafted, which no case holds; "
            "leave the rule out, and the sampler is held to losslessness, or compare it in code "
            f"with specref.law and specref.RULES[{name!r}]"
        )
    return name


def rule_names(given: Any, name: str) -> tuple[str, ...]:
    """Return the names of rules to be held to, each once; one name may stand for a list of one.

    Args:
        given: what was passed or declared.
        name: what the reader calls it.
    """
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Iterable):
        raise UsageError(f"{name} = {given!r}; it is a list of names such as ['token']")
    return tuple(dict.fromkeys(gated_rule(rule) for rule in given))
