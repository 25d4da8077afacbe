"""Subjects in other languages: a program that speaks JSON lines on stdin and stdout.

    specref gate --command "./runner --flag"

The program is started once (no shell; words are split as a shell would) and asked: every question
is one JSON object on one line, and so is every answer. Stdout holds answers and nothing else, each
flushed; what goes to stderr is for people, and its last line is quoted when something goes wrong.
At the end of stdin the program leaves.

First comes a handshake, `>` to the program and `<` from it:

    > {"specref":1}
    < {"name":"my engine 1.2","rules":["token"],"modes":["sample","decide"]}

`modes` is what it can be asked for. The rest may be left out: `rules` are those it claims to follow
(none: it is held to losslessness alone), `drafts` and `shape` are as in `gate.subject`. Then come
requests, without spaces, their keys in this order; all in them but `do` and `rule` is integers:

    > {"id":1,"do":"decide","rule":"token","vocab":2,"p":[[1056964608,1056964608],[1065353216,0]],
       "q":[[1061158912,1048576000],[1065353216,0]],"tokens":[0],"parents":[0],
       "draws":[[0,0],[11184811,16777215]]}
    < {"id":1,"rows":[[0,0],[1]]}
    > {"id":2,"do":"sample",... the same up to "parents" ...,"n":3,"seed":7}
    < {"id":2,"rows":[[0,0],[1],[0,0]]}

    id       repeated in the answer
    rule     the rule that the rows are held to, or null
    vocab    V; tokens are 0 to V - 1
    p, q     a row of V weights for each node: the laws of the token after it. Node 0 is the end of
             the text, then come the drafted tokens in order. Weights are the bits of a float32 as
             an unsigned integer: 1056964608 is 0x3f000000 is 0.5
    tokens   of the nodes 1, 2, ...
    parents  of the same nodes; of a chain 0, 1, 2, ..., and its last row of q is not needed
    draws    in "decide": for each round the integers k of the draws u = k / 2^24, a coin per
             drafted node and then the terminal draw. Columns that a path does not need are ignored
    n, seed  in "sample": how many independent rounds to run, on the program's own draws; they are
             a function of the seed, 0 <= seed < 2^31

`rows` are the emitted tokens of each round. A request that cannot be carried out is answered with
`{"id":1,"error":"why"}`. A program that only decides is given draws by the gate in `sample` too.
"""

import os
import shlex
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from specref.gate.cases import Case
from specref.gate.errors import UsageError
from specref.gate.limit import TimeLimit
from specref.gate.process import Process, RunnerError, clipped

VERSION = 1
"""Of the protocol."""

MODES = ("sample", "decide")

GRID = 1 << 24
"""Number of values of a draw."""

MOST_DECISIONS = 1 << 10
"""Rounds decided in one request: lines stay short, and trips few."""

MOST_DEATHS = 100
"""A program that dies is started again, but not for ever: engines take seconds to load."""


class Command:
    """A program in any language as a subject.

    It is started at once and again after it died, so that one bad case does not take the rest with
    it. It is ended by `close`, when the last reference goes and when Python ends.

    Args:
        command: the program and its arguments, as typed in a shell.
        time_limit: seconds that one answer may take, the first one too.

    Attributes:
        name, rules, drafts, shape: as in `gate.subject`; what the program says of itself.
        modes: what it can be asked for.

    Raises:
        UsageError: no such program, or one that does not speak the protocol.
    """

    def __init__(self, command: str, time_limit: float = 60.0) -> None:
        self.time_limit = time_limit
        self._words = _words(command)
        self._process: Process | None = None
        self._asked = self._deaths = 0
        try:
            hello = self._start()
            self.modes = _modes(hello)
            self.rules = _rules(hello)
            self.name = _text(hello, "name", command)
            self.shape = _text(hello, "shape", "chain")
            self.drafts = _text(hello, "drafts", None)
        except TimeLimit:
            raise UsageError(
                f"{command!r} said nothing for {time_limit:g} s; it answers "
                f'{{"specref":{VERSION}}} with a line on stdout, and flushes it'
            ) from None
        except RunnerError as error:
            self.close()
            raise UsageError(f"{command!r} is no runner: {error}") from None

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Run n rounds on the program's own draws, or on ours if it only decides.

        Returns:
            int64 [n, gamma+1], padded with -1.

        Raises:
            RunnerError: the program died or did not answer what it was asked.
            TimeLimit: it did not answer in time.
        """
        if "sample" in self.modes:
            return self._rows(case, n, "sample", n=int(n), seed=int(seed))
        draws = np.random.default_rng(seed).integers(GRID, size=(n, len(case.tokens) + 1))
        return self._decided(case, draws)

    @property
    def decide(self) -> Callable[[Case, Any], Any] | None:
        """The function `decide(case, u)`, if the program can be given its draws.

        It takes u float64 [m, draws], multiples of 2^-24 in [0, 1), a coin per drafted node and
        then the terminal draw; returns and raises as `sample` does.
        """
        return self._decide if "decide" in self.modes else None

    def close(self) -> None:
        """End the program; the next call starts it again."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _decide(self, case: Case, u: Any) -> Any:
        draws = np.asarray(u, np.float64) * GRID
        columns = len(case.tokens) + 1
        if draws.ndim != 2 or draws.shape[1] != columns:
            raise ValueError(f"u has shape {draws.shape}; expected (rows, {columns})")
        if not ((draws >= 0) & (draws < GRID) & (draws == np.floor(draws))).all():
            raise ValueError("u must be multiples of 2^-24 in [0, 1)")
        return self._decided(case, draws.astype(np.int64))

    def _decided(self, case: Case, draws: Any) -> Any:
        parts = [
            self._rows(case, len(part), "decide", draws=part.tolist())
            for part in np.split(draws, range(MOST_DECISIONS, len(draws), MOST_DECISIONS))
        ]
        return np.concatenate(parts)

    def _rows(self, case: Case, count: int, do: str, **how: Any) -> Any:
        """Ask for so many rounds; return them as an array."""
        return _padded(self._ask({"do": do, **_encoded(case), **how}), count, case.gamma + 1)

    def _ask(self, request: dict[str, Any]) -> Any:
        """Return the rows that answer a request."""
        try:
            process = self._process or self._again()
            self._asked += 1
            answer = process.ask({"id": self._asked, **request}, self.time_limit)
            if "error" not in answer and answer.get("id") != self._asked:
                raise RunnerError(f"answered request {self._asked} with {clipped(answer)}")
        except BaseException:
            self._kill()
            raise
        if "error" in answer:
            raise RunnerError(f"answered with the error {clipped(answer['error'])}")
        if "rows" not in answer:
            raise RunnerError(f"answered without rows: {clipped(answer)}")
        return answer["rows"]

    def _start(self) -> dict[str, Any]:
        """Start the program; return its answer to the handshake."""
        self._process = Process(self._words)
        try:
            hello = self._process.ask({"specref": VERSION}, self.time_limit)
        except BaseException:
            self._kill()
            raise
        if "error" in hello:
            raise RunnerError(f"answered the handshake with the error {clipped(hello['error'])}")
        return hello

    def _kill(self) -> None:
        """End the program at once: what it may still say would belong to no question."""
        if self._process is not None:
            self._process.kill()
            self._process = None
            self._deaths += 1

    def _again(self) -> Process:
        if self._deaths >= MOST_DEATHS:
            raise RunnerError(f"died {self._deaths} times; it is not started again")
        self._start()
        assert self._process is not None
        return self._process


def _words(command: str) -> list[str]:
    """Split a command as a shell would."""
    if os.name != "posix":
        raise UsageError("commands as subjects need POSIX pipes; on Windows, use WSL")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"command {command!r} does not split into words: {error}; mind the quotes"
        ) from None
    if not words:
        raise UsageError("the command is empty; name a program that speaks JSON lines, ./runner")
    return words


def _modes(hello: dict[str, Any]) -> tuple[str, ...]:
    given = hello.get("modes")
    modes = tuple(mode for mode in MODES if isinstance(given, list) and mode in given)
    if not modes:
        raise RunnerError(f"its handshake has modes {clipped(given)}; some of {list(MODES)}")
    return modes


def _rules(hello: dict[str, Any]) -> tuple[str, ...]:
    rules = hello.get("rules", [])
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise RunnerError(f"its handshake has rules {clipped(rules)}; a list of names is due")
    return tuple(rules)


def _text(hello: dict[str, Any], key: str, default: str | None) -> str | None:
    text = hello.get(key)
    if text is None:
        return default
    if not isinstance(text, str):
        raise RunnerError(f"its handshake has {key} {clipped(text)}; a string is due")
    return text


def _encoded(case: Case) -> dict[str, Any]:
    """Return what a request says of a case: integers alone, so that every language reads it."""
    case.handed.add("float32")
    return {
        "rule": case.rule,
        "vocab": case.vocab,
        "p": _bits(case.p),
        "q": _bits(case.q),
        "tokens": case.tokens,
        "parents": case.parents,
    }


def _bits(rows: Any) -> Any:
    return np.array(rows, np.float32).view(np.uint32).tolist()


def _padded(rows: Any, count: int, width: int) -> Any:
    """Return rows of tokens as an array.

    Raises:
        RunnerError: another number of rows, rows that are too long, or no integers.
    """
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise RunnerError(f"answered with rows {clipped(rows)}; a list of lists is due")
    if len(rows) != count:
        raise RunnerError(f"answered with {len(rows)} rows where {count} are due")
    longest: list[Any] = max(rows, key=len, default=[])
    if len(longest) > width:
        raise RunnerError(
            f"answered with the row {clipped(longest)}; a round emits {width} at most"
        )
    for x in chain.from_iterable(rows):
        if type(x) is not int or abs(x) >= 1 << 31:
            raise RunnerError(f"answered with {clipped(x)} where a token is due")
    filled = [row + [-1] * (width - len(row)) for row in rows]
    return np.array(filled, np.int64).reshape(count, width)
