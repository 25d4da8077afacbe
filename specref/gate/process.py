"""A program at the other end of pipes: one line of JSON in, one line out, nothing left behind."""

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import IO, Any
from weakref import finalize

from specref.gate.limit import TimeLimit

MOST_BYTES = 1 << 24
"""Longest answer that is read."""

GRACE = 1.0
"""Seconds that a program gets to leave by itself at the end of its input."""


class RunnerError(Exception):
    """The program died, or answered with what is no answer; or its answer is an error."""


class Process:
    """One run of the program: a line in, a line out, and nothing left behind.

    Pipes are served together and never waited for one by one: a program may write a lot to stderr,
    or answer before it has read everything.
    """

    def __init__(self, words: Sequence[str]) -> None:
        try:
            # A session of its own: an interrupt in the terminal is ours to handle, and processes
            # that the program started are ended with it.
            self._popen = subprocess.Popen(
                words,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise RunnerError(_unstartable(words[0], error)) from None
        self._ending = finalize(self, _end, self._popen, GRACE)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in _pipes(self._popen))
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe, False)
        self._open = {self._stdout, self._stderr}
        self._said, self._noise = bytearray(), bytearray()
        self._complete = False

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send one line; return the object on the line that comes back.

        Raises:
            RunnerError: the program died, or the line holds no object.
            TimeLimit: no line came in time.
        """
        line = json.dumps(question, separators=(",", ":")) + "\n"
        said, more = self._exchange(line.encode(), monotonic() + seconds)
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise RunnerError(
                f"printed {clipped(said)} where a JSON object is due; stdout is for answers, "
                "everything else goes to stderr"
            )
        if more:
            raise RunnerError(f"printed more than one line for one request: {clipped(more)}")
        return answer

    def end(self) -> None:
        """End its input; it has some time to leave before it is killed."""
        self._ending()

    def kill(self) -> None:
        """End the program at once."""
        if self._ending.detach():
            _end(self._popen, 0)

    def _exchange(self, line: bytes, deadline: float) -> tuple[bytes, bytes]:
        """Send a line; return the line that comes back, and what came with it.

        Stderr is kept empty meanwhile.
        """
        unsent = memoryview(line)
        with selectors.DefaultSelector() as ready:
            ready.register(self._stdin, selectors.EVENT_WRITE)
            for pipe in self._open:
                ready.register(pipe, selectors.EVENT_READ)
            while unsent or not self._complete:
                if self._stdout not in self._open and not self._complete:
                    raise RunnerError(self._last_words())
                left = deadline - monotonic()
                if left <= 0:
                    raise TimeLimit
                for key, _ in ready.select(left):
                    if key.fd == self._stdin:
                        unsent = self._write(unsent)
                        if not unsent:
                            ready.unregister(self._stdin)
                    elif self._read(key.fd) == b"":
                        self._open.discard(key.fd)
                        ready.unregister(key.fd)
        said, _, more = bytes(self._said).partition(b"\n")
        self._said.clear()
        self._complete = False
        return said, more

    def _write(self, unsent: memoryview) -> memoryview:
        """Send what fits; return the rest, nothing if nobody reads any more."""
        try:
            return unsent[os.write(self._stdin, unsent) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:
            return unsent[:0]  # whether it answers all the same, or has died, stdout tells

    def _read(self, pipe: int) -> bytes | None:
        """Take what is there: None if nothing is yet, no bytes at the end."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return None
        if pipe == self._stderr:
            self._noise = (self._noise + chunk)[-(1 << 12) :]
            return chunk
        self._said += chunk
        self._complete |= b"\n" in chunk
        if len(self._said) > MOST_BYTES:
            raise RunnerError(f"printed more than {MOST_BYTES >> 20} MiB for one request")
        return chunk

    def _last_words(self) -> str:
        """Return how the program ended, and what it said last."""
        try:
            code = self._popen.wait(GRACE)
        except subprocess.TimeoutExpired:
            text = "closed its stdout"
        else:
            text = f"was ended by {_signal(-code)}" if code < 0 else f"left with exit code {code}"
        if self._said:
            text += f" in the middle of a line, {clipped(self._said)}"
        for _ in range(64):  # more than a pipe holds; it may also go on for ever
            if not self._read(self._stderr):
                break
        lines = [line.strip() for line in self._noise.splitlines() if line.strip()]
        return f"{text}; its stderr ends with {clipped(lines[-1])}" if lines else text


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr


def _end(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """End a program, and whatever it started: its input first, then by force."""
    stdin, stdout, stderr = _pipes(process)
    try:
        stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    finally:
        with suppress(ProcessLookupError, PermissionError):  # all have left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        stdout.close()
        stderr.close()


def _unstartable(program: str, error: OSError | ValueError) -> str:
    """Return why a program does not start, and the cure."""
    if isinstance(error, FileNotFoundError):
        if os.path.exists(program):
            return f"the interpreter in the first line of {program} is not found"
        return f"there is no program {program!r}; give a path (./runner) or a name on PATH"
    reason = getattr(error, "strerror", None) or error
    return (
        f"{program!r} cannot be run ({reason}); chmod +x it, or write its interpreter before it "
        "(node runner.js)"
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clipped(thing: Any, limit: int = 80) -> str:
    """Return data as one short line."""
    if isinstance(thing, bytes | bytearray):
        thing = bytes(thing[: limit + 1]).decode(errors="backslashreplace")
    text = thing if isinstance(thing, str) else json.dumps(thing)
    return repr(text if len(text) <= limit else f"{text[:limit]}...")
