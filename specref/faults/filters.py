"""The target law that is used is not the one that was asked for."""

from specref.choice import Choose
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.frame import chance, residual, softmax, verify_chain
from specref.faults.proposals import top_two
from specref.model import Model
from specref.rules.greedy import greedy


def filter_on_bonus_only(root: Node, choose: Choose) -> tuple[int, ...]:
    """Filter the bonus row and leave the verified rows raw: tokens come out that it forbids."""
    return verify_chain(root, choose, bonus=lambda nodes: top_two(nodes[-1].p))


def decoded_greedily(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take the argmax of every row although sampling was asked for: the output has no entropy."""
    return greedy(root, choose)


def target_softmaxed_twice(root: Node, choose: Choose) -> tuple[int, ...]:
    """Pass probabilities where logits are expected: a second softmax flattens p everywhere."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: chance(softmax(nodes[i].p), nodes[i].q, x),
        correct=lambda nodes, i, x: residual(softmax(nodes[i].p), nodes[i].q),
        bonus=lambda nodes: softmax(nodes[-1].p),
    )


def top_two_of(p: Model) -> Model:
    """Return the model that a top-2 filter asks for."""
    return lambda context: top_two(p(context))


FAULTS = (
    Fault(
        "filter_on_bonus_only", "token", "filters",
        "A top-2 filter is applied to the bonus row only.",
        "The filter is applied to every target row.",
        verify=filter_on_bonus_only, target=top_two_of,
        links=("vllm-project/vllm#42744", "vllm-project/vllm#42802"),
    ),
    Fault(
        "decoded_greedily", "token", "filters",
        "The argmax of every target row is emitted.",
        "Tokens are sampled from p.",
        verify=decoded_greedily,
        links=("sgl-project/sglang#31214", "sgl-project/sglang#39253"),
    ),
    Fault(
        "target_softmaxed_twice", "token", "filters",
        "The softmax of the probabilities p is used in place of p.",
        "The law p is a softmax already and is used as it is.",
        verify=target_softmaxed_twice,
        links=("vllm-project/vllm-ascend#6685",),
    ),
)  # fmt: skip
"""The faults of this family."""
