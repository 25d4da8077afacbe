"""The backend for any device: PyTorch, with native rows on a CPU where they can be built."""

from gpu_impl.torch_backend.walk import verify

__all__ = ["verify"]
