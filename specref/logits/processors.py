"""Steps that change scores or forbid tokens, by what was said before: penalties, bias, masks."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from specref.dist import Number, integers
from specref.logits.parameters import Parameters, listed
from specref.logits.presets import Preset
from specref.logits.row import Row
from specref.logits.score import Score

Step = Callable[[Row], Row]


class Context:
    """What was said so far.

    Args:
        prompt, output: tokens, each in 0 <= token < V.
        vocab: V.

    Raises:
        ValueError: tokens outside the vocabulary.
    """

    def __init__(self, prompt: Sequence[int], output: Sequence[int], vocab: int) -> None:
        self.prompt = tuple(inside(prompt, "prompt", vocab))
        self.output = tuple(inside(output, "output", vocab))

    def came(self, parameters: Parameters, preset: Preset, counted: str) -> Counter[int]:
        """Return how often tokens came, where penalties look."""
        window = preset.window if parameters.penalty_window is None else parameters.penalty_window
        tokens = self.output if counted == "output" else self.prompt + self.output
        return Counter(tokens if window is None else tokens[max(0, len(tokens) - window) :])


def inside(tokens: Iterable[int], name: str, vocab: int) -> list[int]:
    """Return tokens, all of which are in the vocabulary.

    Raises:
        ValueError: others.
    """
    read = integers(tokens, name)
    for at, x in enumerate(read):
        if not 0 <= x < vocab:
            raise ValueError(f"{name}[{at}] = {x} is out of range; pass 0 <= token < V = {vocab}")
    return read


def processors(parameters: Parameters, preset: Preset, context: Context) -> dict[str, Step]:
    """Return the steps that are no filters, by the names of their parameters.

    Args:
        parameters: what is asked.
        preset: how it is read.
        context: what was said; allowed tokens may be a function of its output.
    """
    everywhere = context.came(parameters, preset, "all")
    counted = context.came(parameters, preset, preset.counted)
    return {
        "bias": lambda row: _biased(row, parameters),
        "allowed": lambda row: row.keep(_allowed(row, parameters, context)),
        "min_tokens": lambda row: _unended(row, parameters, context),
        "repetition_penalty": lambda row: _repeated(row, parameters.repetition_penalty, everywhere),
        "presence_penalty": lambda row: _lowered(
            row, parameters.presence_penalty, dict.fromkeys(counted, 1)
        ),
        "frequency_penalty": lambda row: _lowered(row, parameters.frequency_penalty, counted),
        "temperature": lambda row: row.changed(lambda _, s: s.times(1 / parameters.temperature)),
    }


def _biased(row: Row, parameters: Parameters) -> Row:
    bias = parameters.bias
    for x in bias:
        if not 0 <= x < row.vocab:
            raise ValueError(f"bias[{x}] is out of range; pass 0 <= token < V = {row.vocab}")
    forbidden = {x for x, value in bias.items() if isinstance(value, float)}
    kept = row.keep(x for x in row.scores if x not in forbidden)
    return kept.changed(lambda x, score: score + Score(bias[x]) if x in bias else score)


def _allowed(row: Row, parameters: Parameters, context: Context) -> list[int]:
    allowed = parameters.allowed
    tokens = listed(allowed(context.output)) if callable(allowed) else allowed
    assert tokens is not None  # otherwise the step is off
    return inside(tokens, "allowed", row.vocab)


def _unended(row: Row, parameters: Parameters, context: Context) -> Row:
    ends = set(inside(parameters.eos, "eos", row.vocab))
    if len(context.output) >= parameters.min_tokens:
        return row
    return row.keep(x for x in row.scores if x not in ends)


def _repeated(row: Row, penalty: Number, came: Counter[int]) -> Row:
    """Divide positive logits of tokens that came, and multiply the others (Keskar et al. 2019)."""

    def change(x: int, score: Score) -> Score:
        if x not in came:
            return score
        return score.times(1 / penalty if row.positive(x) else penalty)

    return row.changed(change)


def _lowered(row: Row, penalty: Number, times: "dict[int, int] | Counter[int]") -> Row:
    return row.changed(lambda x, score: score + Score(-penalty * times[x]) if x in times else score)
