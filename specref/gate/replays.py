"""Replay files, read with distrust: people edit them, and they come from other machines."""

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from specref.gate.errors import UsageError, nearest
from specref.gate.report import CLAIMS, REPLAY_FORMAT, SEVERITIES
from specref.gate.session import PROFILES
from specref.rules import RULES

FIELDS = ("subject", "profile", "seed", "claim", "rule", "severity", "case")


OF_CASES = {"request": ("sequences", "metamorphic"), "preset": ("parameters", "metamorphic")}
"""What a case holds that is not of rounds, and the claims that have such cases."""


class _Damage(Exception):
    """A field that does not hold what it should; the message names both."""


def read_replay(path: str | Path) -> dict[str, Any]:
    """Return the data of a replay file; its case is sure to be one.

    Raises:
        UsageError: no such file, no JSON, another format or version, or a damaged field.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON; pass a file that --report wrote") from None
    if not isinstance(data, dict) or data.get("format") != REPLAY_FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise UsageError(f"{path} has format {found!r}; this version reads {REPLAY_FORMAT!r}")
    missing = [name for name in FIELDS if name not in data]
    if missing:
        raise UsageError(f"{path} lacks {', '.join(missing)}; write it anew with --report")
    try:
        _check(data)
    except _Damage as damage:
        raise UsageError(f"{path} is damaged: {damage}; write it anew with --report") from None
    return data


def _check(data: dict[str, Any]) -> None:
    subject, seed = data["subject"], data["seed"]
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise _Damage(f"subject is {_short(subject)}, not a name, or null for an object")
    _known(data, "profile", PROFILES)
    _known(data, "claim", CLAIMS)
    _known(data, "severity", SEVERITIES)
    if data["rule"] is not None:
        _known(data, "rule", RULES)
    if not _is_integer(seed) or not 0 <= seed < 1 << 31:
        raise _Damage(f"seed is {_short(seed)}, not an integer in 0 <= seed < 2^31")
    case = data["case"]
    if not isinstance(case, dict):
        raise _Damage(f"case is {_short(case)}, not a case")
    for key, claims in OF_CASES.items():
        if key in case and data["claim"] not in claims:
            raise _Damage(f"claim is {data['claim']!r}, but the case is one of {claims[0]!r}")
    if "request" in case:
        if not isinstance(case["request"], str):
            raise _Damage(f"case.request is {_short(case['request'])}, not a name")
    elif "preset" in case:
        return  # `asks.from_json` checks what it reads
    elif "fixture" in case:
        _check_fixture(case)
    else:
        _check_case(case, data["rule"])


def _known(data: dict[str, Any], field: str, names: Sequence[str] | dict[str, Any]) -> None:
    value = data[field]
    if not isinstance(value, str) or value not in names:
        near = nearest(str(value), names)
        raise _Damage(f"{field} is {_short(value)}{near}, not one of {', '.join(names)}")


def _check_case(case: dict[str, Any], rule: str | None) -> None:
    tokens, parents = (
        _integers(_get(case, name), f"case.{name}") for name in ("tokens", "parents")
    )
    if case.get("rule") != rule:
        raise _Damage(f"case.rule is {_short(case.get('rule'))}, and rule is {_short(rule)}")
    if _get(case, "shape") not in ("chain", "tree"):
        raise _Damage(f"case.shape is {_short(case['shape'])}, not 'chain' or 'tree'")
    if len(parents) != len(tokens):
        raise _Damage(f"case.parents has {len(parents)} entries for {len(tokens)} tokens")
    tables = [_table(_get(case, name), f"case.{name}", len(tokens) + 1) for name in ("p", "q")]
    vocab = len(tables[0][0])
    _same_size([row for table in tables for row in table], vocab)
    for at, (x, parent) in enumerate(zip(tokens, parents, strict=True)):
        if not 0 <= x < vocab:
            raise _Damage(f"case.tokens[{at}] = {x} is outside 0 <= token < {vocab}")
        if not 0 <= parent <= at or (case["shape"] == "chain" and parent != at):
            raise _Damage(f"case.parents[{at}] = {parent} does not fit a {case['shape']}")
    logits = case.get("logits")
    if logits is None:
        return
    if not isinstance(logits, list) or len(logits) != 2:
        raise _Damage("case.logits is not a pair of tables")
    for name, table in zip("pq", logits, strict=True):
        rows = _table(table, f"case.logits of {name}", len(tokens) + 1, logits=True)
        _same_size(rows, vocab)


def _check_fixture(case: dict[str, Any]) -> None:
    if not isinstance(case["fixture"], str):
        raise _Damage(f"case.fixture is {_short(case['fixture'])}, not a name")
    shape = _get(case, "shape")
    widths = _integers([shape] if _is_integer(shape) else shape, "case.shape")
    if not widths or min(widths) < 1 or max(widths) > 64:
        raise _Damage(f"case.shape is {_short(shape)}, not a depth or a list of widths")
    tables = []
    for name in ("p", "q"):
        pairs = _get(case, name)
        if not isinstance(pairs, list) or not all(
            isinstance(x, list) and len(x) == 2 for x in pairs
        ):
            raise _Damage(f"case.{name} is not a list of pairs of a context and a row")
        contexts = [tuple(_integers(context, f"context of case.{name}")) for context, _ in pairs]
        rows = _table([row for _, row in pairs], f"case.{name}", len(pairs))
        tables.append(dict(zip(contexts, rows, strict=True)))
    p, q = tables
    if () not in p or p.keys() != q.keys():
        raise _Damage("case.p and case.q are not laws after the same contexts, [] among them")
    _same_size([*p.values(), *q.values()], len(p[()]))


def _get(case: dict[str, Any], name: str) -> Any:
    if name not in case:
        raise _Damage(f"case has no {name}")
    return case[name]


def _table(rows: Any, name: str, count: int, logits: bool = False) -> list[list[str]]:
    """Return rows of hexadecimal floats: of laws, or of logits, which may be anything but NaN."""
    if not isinstance(rows, list) or len(rows) != count or not rows:
        raise _Damage(f"{name} is not a list of {count} rows")
    for at, row in enumerate(rows):
        if not isinstance(row, list) or not row:
            raise _Damage(f"{name}[{at}] is {_short(row)}, not a row")
        values = [_float(text, f"{name}[{at}][{x}]") for x, text in enumerate(row)]
        if not logits and (not all(0 <= value < inf for value in values) or not sum(values)):
            raise _Damage(f"{name}[{at}] is no law; its weights are finite, >= 0 and not all 0")
    return rows


def _float(text: Any, name: str) -> float:
    try:
        value = float.fromhex(text)
    except (TypeError, ValueError, OverflowError):
        raise _Damage(f"{name} is {_short(text)}, not a hexadecimal float") from None
    if value != value:
        raise _Damage(f"{name} is not a number")
    return value


def _same_size(rows: list[list[str]], vocab: int) -> None:
    for row in rows:
        if len(row) != vocab:
            raise _Damage(f"the laws of case have rows of {vocab} and of {len(row)} tokens")


def _integers(values: Any, name: str) -> list[int]:
    if not isinstance(values, list) or not all(map(_is_integer, values)):
        raise _Damage(f"{name} is {_short(values)}, not a list of integers")
    return values


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
