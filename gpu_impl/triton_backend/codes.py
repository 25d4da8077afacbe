"""The numbers of `gpu_impl.status`, as kernels see them."""

import triton.language as tl

from gpu_impl.status import Decision, Status, Terminal

BONUS = tl.constexpr(int(Terminal.BONUS))
RESIDUAL = tl.constexpr(int(Terminal.RESIDUAL))
TARGET = tl.constexpr(int(Terminal.TARGET))
FALLBACK = tl.constexpr(int(Terminal.FALLBACK))

BAD_TARGET = tl.constexpr(int(Status.BAD_TARGET))
BAD_DRAFT = tl.constexpr(int(Status.BAD_DRAFT))
ZERO_DRAFT = tl.constexpr(int(Status.ZERO_DRAFT))
BAD_TOKEN = tl.constexpr(int(Status.BAD_TOKEN))
EMPTY_RESIDUAL = tl.constexpr(int(Status.EMPTY_RESIDUAL))
EQUAL_SIBLINGS = tl.constexpr(int(Status.EQUAL_SIBLINGS))
BAD_PARAMETERS = tl.constexpr(int(Status.BAD_PARAMETERS))
BAD_FOREST = tl.constexpr(int(Status.BAD_FOREST))

REFUSED = tl.constexpr(int(Decision.REFUSED))
ACCEPTED = tl.constexpr(int(Decision.ACCEPTED))
