"""The text that the models look at is not the text that was emitted: caches, rows, tree masks."""

from specref.dist import Law
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.rounds import Round, drafted, exchanging, masked, moved, until_end, with_rows
from specref.model import Context, Model


@exchanging("target")
def cache_not_rolled_back(now: Round) -> Model:
    """Leave refused drafts in the target's cache, where later rounds see them."""
    seen = now.context
    for root, out in now.past:
        seen = (*seen, *drafted(root), out[-1])
    return moved(now.p, now.here, seen)


@exchanging("target")
def cache_rolled_back_too_far(now: Round) -> Model:
    """Drop with the refused drafts the token before them from the target's cache."""
    seen = now.context
    for root, out in now.past:
        refused = len(out) <= len(drafted(root))
        seen = (*(*seen, *out[:-1])[: -1 if refused else None], out[-1])
    return moved(now.p, now.here, seen)


@exchanging("target")
def cache_emptied(now: Round) -> Model:
    """Reset the target's cache, so that it sees nothing of what stood before the last round."""
    seen = now.past[-1][1] if now.past else now.context
    return moved(now.p, now.here, seen)


@exchanging("target")
def bonus_missing_in_cache(now: Round) -> Model:
    """Never enter a bonus in the target's cache; later rounds see the text without it."""
    seen = now.context
    for root, out in now.past:
        seen = (*seen, *(out[:-1] if len(out) > len(drafted(root)) else out))
    return moved(now.p, now.here, seen)


@exchanging("target")
def last_token_not_seen(now: Round) -> Model:
    """Run the target before the last token of the round before is in its input."""
    return moved(now.p, now.here, now.here[:-1] if now.past else now.here)


@exchanging("target")
def tree_path_not_gathered(now: Round) -> Model:
    """Keep of a tree in the target's cache as many first nodes as tokens were accepted.

    In a chain they are the accepted ones; in a tree they need not be.
    """
    seen = now.context
    for root, out in now.past:
        seen = (*seen, *drafted(root)[: len(out) - 1], out[-1])
    return moved(now.p, now.here, seen)


@exchanging("submitted")
def tree_rows_by_index(now: Round, root: Node) -> Node:
    """Let the target row of a node see all nodes before it, and not just those above it."""
    tokens = drafted(root)

    def row(node: Node, text: Context) -> Law:
        seen = (*now.here, *tokens[: node.index])
        return until_end(now, masked(now, lambda context: now.p(seen)))(text)

    return with_rows(root, now.here, p=row)


FAULTS = (
    Fault(
        "cache_not_rolled_back", "token", "caches",
        "Refused drafts stay in the target's cache, and later rounds see them.",
        "The target sees the text that was emitted.",
        loop=cache_not_rolled_back,
        links=("ml-explore/mlx-lm#1109", "Blaizzy/mlx-vlm#1155"),
    ),
    Fault(
        "cache_rolled_back_too_far", "token", "caches",
        "With refused drafts the token before them leaves the target's cache.",
        "Only refused drafts leave the cache.",
        loop=cache_rolled_back_too_far,
        links=("ggml-org/llama.cpp#22746",),
    ),
    Fault(
        "cache_emptied", "token", "caches",
        "The target sees nothing of what stood before the last round.",
        "The target sees the prompt and the whole text.",
        loop=cache_emptied,
        links=("paiml/aprender#2014",),
    ),
    Fault(
        "bonus_missing_in_cache", "token", "caches",
        "A bonus is never entered in the target's cache.",
        "The target sees the bonus like any token.",
        loop=bonus_missing_in_cache,
    ),
    Fault(
        "last_token_not_seen", "token", "caches",
        "The target runs before the last token of the round before is in its input.",
        "All rows of a round are conditioned on the whole text.",
        loop=last_token_not_seen,
    ),
    Fault(
        "tree_path_not_gathered", "target_only", "caches",
        "Of a tree, the first nodes stay in the target's cache, as many as were accepted.",
        "The nodes of the accepted path stay.",
        loop=tree_path_not_gathered,
        links=("NVIDIA/TensorRT-LLM#10343",),
    ),
    Fault(
        "tree_rows_by_index", "target_only", "caches",
        "The target row of a node sees all nodes before it in the tree.",
        "A node sees the nodes above it.",
        loop=tree_rows_by_index,
        links=("lablup/mlxcel#1214",),
    ),
)  # fmt: skip
"""The faults of this family."""
