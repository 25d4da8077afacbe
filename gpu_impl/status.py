"""What a call says about each request beside its tokens: how it ended, and what was wrong."""

from enum import IntEnum, IntFlag


class Terminal(IntEnum):
    """Where the last emitted token of a request comes from.

    Attributes:
        BONUS: the target law behind the last accepted node, which has no drafts.
        RESIDUAL: what the target still lacked after its drafts were refused.
        TARGET: the target law itself where drafts could not be used, see `Status`.
        FALLBACK: no law at all: the likeliest finite entry of a bad row, or the caller's token.
    """

    BONUS = 0
    RESIDUAL = 1
    TARGET = 2
    FALLBACK = 3


class Status(IntFlag):
    """What was wrong with a request's input, and met on its way; 0 if nothing.

    A drafted token that cannot have been drafted (outside the vocabulary, of draft probability 0,
    from a draft row that is no law) is treated as not drafted, so the tokens still follow the
    target. A token of -1 is a placeholder and means just that, without a flag.

    Attributes:
        BAD_TARGET: a target row on the path has a NaN, a +inf or nothing above -inf. The round ends
            with the likeliest finite entry, or with the caller's `fallback`.
        BAD_DRAFT: a draft row on the path has a NaN, a +inf, a negative probability or no mass.
        ZERO_DRAFT: a drafted token has draft probability 0.
        BAD_TOKEN: a drafted token below -1, or not below V.
        EMPTY_RESIDUAL: rounding left nothing of the residual after a refusal; the last token is
            drawn from the target.
        EQUAL_SIBLINGS: siblings that were drawn without replacement are equal; the later ones are
            treated as not drafted.
        BAD_PARAMETERS: a sampling parameter is NaN or out of the range of its preset; ends like
            BAD_TARGET.
        BAD_FOREST: the request's nodes are not 0 <= parent < node, or its boundaries do not rise;
            ends after the root as if nothing had been drafted.
    """

    BAD_TARGET = 1
    BAD_DRAFT = 2
    ZERO_DRAFT = 4
    BAD_TOKEN = 8
    EMPTY_RESIDUAL = 16
    EQUAL_SIBLINGS = 32
    BAD_PARAMETERS = 64
    BAD_FOREST = 128


class Decision(IntEnum):
    """What became of a node, in the trace.

    At a node that was visited, of the children that can have been drafted the one that was taken is
    ACCEPTED, and those before it (all of them, if none was taken) are REFUSED. In "block" these are
    the nodes of which the coins were asked, from the deepest up. All others are UNTESTED.
    """

    UNTESTED = 0
    REFUSED = 1
    ACCEPTED = 2
