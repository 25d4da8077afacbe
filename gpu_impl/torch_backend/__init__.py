"""The backend for any device: PyTorch, or, on a CPU, native code where it can be built."""

from gpu_impl.call import Batch
from gpu_impl.torch_backend import native, native_round, walk
from gpu_impl.torch_backend.sides import implementation
from gpu_impl.verified import Verified

__all__ = ["verify"]


def verify(batch: Batch) -> Verified:
    """Verify a checked batch, see `gpu_impl.verify`."""
    if implementation(batch.logits.device) is native:
        return native_round.verify(batch)
    return walk.verify(batch)
