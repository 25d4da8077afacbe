"""The loop ends a text elsewhere than plain decoding does: EOS, stop sequences, limits."""

from dataclasses import replace

from specref.choice import at_start
from specref.dist import Law
from specref.draft import Node, Shape, depth
from specref.faults.fault import Fault
from specref.faults.rounds import Round, exchanging, masked, past_end
from specref.model import Context, Model
from specref.stops import Text


@exchanging("end", until_end=past_end)
def ends_inside_blocks_ignored(now: Round, text: Text) -> int | None:
    """Look for an end at the last token of a block only."""
    return len(text) if now.stops.over(text) else None


@exchanging("end", until_end=past_end)
def token_behind_accepted_eos(now: Round, text: Text) -> int | None:
    """Emit the correction or bonus also where the last accepted draft is an EOS."""
    length = now.stops.end(text, len(now.text))
    more = length is not None and length == len(text) - 1 and text[length - 1] in now.stops.eos
    return len(text) if more else length


@exchanging("emitted", until_end=past_end)
def accepted_eos_redrawn(now: Round, root: Node, out: Text) -> Text:
    """Take back an accepted EOS and draw its token from the target again."""
    for at, x in enumerate(out[:-1]):
        if x in now.stops.eos:
            # The terminal draw of this round went to a token that is dropped.
            draws = at_start(now.choose, len(now.here) + at)
            return (*out[:at], draws(masked(now, now.p)((*now.here, *out[:at]))))
    return out


def as_asked(now: Round) -> Shape:
    """Return the shape that is asked for, although less may be emitted."""
    return now.asked_shape


def unlimited_end(now: Round, text: Text) -> int | None:
    """Return where the text ends but for its limit."""
    return replace(now.stops, max_tokens=None).end(text, len(now.text))


@exchanging("end", until_end=past_end, widths=as_asked)
def limit_overrun(now: Round, text: Text) -> int | None:
    """Look at the limit before a round, and keep all that the last one emits."""
    length = unlimited_end(now, text)
    most = now.stops.max_tokens
    return len(text) if length is None and most is not None and len(text) >= most else length


@exchanging("emitted", until_end=past_end, widths=as_asked)
def limit_keeps_the_tail(now: Round, root: Node, out: Text) -> Text:
    """Keep of a block that is too long for the limit its last tokens instead of its first ones."""
    length = unlimited_end(now, now.text + out)
    block = out if length is None else out[: length - len(now.text)]
    left = now.stops.left(now.text)
    return block if left is None else block[-left:]


@exchanging("target")
def last_row_before_limit_missing(now: Round) -> Model:
    """Fill no row for the last token inside the limit; the row before is read in its place.

    A round that drafts nothing has just that row, and it is there.
    """
    most = now.stops.max_tokens

    def rows(context: Context) -> Law:
        last = most is not None and len(context) - len(now.context) == most - 1
        return now.p(context[:-1] if last and len(context) > len(now.here) else context)

    return rows


@exchanging("masked")
def min_tokens_ignored(now: Round, model: Model) -> Model:
    """Leave EOS unmasked although min_tokens is not reached."""
    return model


@exchanging("masked")
def min_tokens_asked_once_per_round(now: Round, model: Model) -> Model:
    """Mask EOS in all rows of a round if it is to be masked in the first."""
    length, stops = len(now.text), now.stops
    if length < stops.min_tokens and stops.eos:
        most = length + depth(now.asked_shape) + 1
        stops = replace(stops, max_tokens=None, min_tokens=most)
    return stops.asked(model, now.context)


@exchanging("end")
def stop_across_rounds_missed(now: Round, text: Text) -> int | None:
    """Look for stop sequences in the tokens of one round, so not where one began before."""
    begun = len(now.text)
    while (length := now.stops.end(text, begun)) is not None:
        block = text[len(now.text) : length]
        stopped = now.stops.reason(text[:length]) == "stop" and length != now.stops.max_tokens
        if not stopped or any(block[-len(s) :] == s for s in now.stops.stop):
            return length
        begun = length
    return None


FAULTS = (
    Fault(
        "ends_inside_blocks_ignored", "token", "ends",
        "Whether the text ends is looked up at the last token of a block only.",
        "The text ends at its first EOS or stop sequence, wherever in a block it stands.",
        loop=ends_inside_blocks_ignored,
        links=("huggingface/transformers#47912", "huggingface/transformers#48981"),
    ),
    Fault(
        "token_behind_accepted_eos", "token", "ends",
        "An EOS that is the last accepted draft is followed by the correction or bonus.",
        "An accepted EOS is the last token of the text.",
        loop=token_behind_accepted_eos,
        links=("huggingface/transformers#28508",),
    ),
    Fault(
        "accepted_eos_redrawn", "token", "ends",
        "An accepted EOS is taken back, and its token is drawn from the target again.",
        "An accepted EOS is the last token of the text.",
        loop=accepted_eos_redrawn,
        links=("huggingface/transformers#28508",),
    ),
    Fault(
        "limit_overrun", "token", "ends",
        "The limit is looked at before a round, which may then emit more than it leaves.",
        "Drafts are capped by what is left, less one, or the text is cut at the limit.",
        loop=limit_overrun,
        links=("huggingface/transformers#28508", "huggingface/transformers#48981"),
    ),
    Fault(
        "limit_keeps_the_tail", "token", "ends",
        "Of a block that is too long for the limit its last tokens are kept.",
        "The first tokens of the block are kept.",
        loop=limit_keeps_the_tail,
    ),
    Fault(
        "last_row_before_limit_missing", "token", "ends",
        "Behind drafts, the last token inside the limit is drawn with the target row before its.",
        "Rows are as many as drafts and one more, up to the limit.",
        loop=last_row_before_limit_missing,
        links=("huggingface/transformers#28508", "huggingface/transformers#48981"),
    ),
    Fault(
        "min_tokens_ignored", "token", "ends",
        "EOS may come before min_tokens have.",
        "Until min_tokens have come, EOS is masked in the target.",
        loop=min_tokens_ignored,
        links=("intel/ipex-llm#9963",),
    ),
    Fault(
        "min_tokens_asked_once_per_round", "token", "ends",
        "All rows of a round mask EOS if its first one does.",
        "Each row masks EOS by the length of its own text.",
        loop=min_tokens_asked_once_per_round,
    ),
    Fault(
        "stop_across_rounds_missed", "token", "ends",
        "Stop sequences are looked for in the tokens of one round.",
        "They are looked for in the whole text, and may begin in an earlier round.",
        loop=stop_across_rounds_missed,
    ),
)  # fmt: skip
"""The faults of this family."""
