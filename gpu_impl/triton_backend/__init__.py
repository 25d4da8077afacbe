"""The backend for CUDA devices: Triton kernels, which also run in Triton's interpreter.

One launch walks every request down its drafts (`walk`); in small batches another one before it sums
up all rows, split over the device (`statistics`).
"""

from gpu_impl.triton_backend.launch import verify

__all__ = ["verify"]
