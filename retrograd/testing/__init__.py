"""Questions that any op can be asked, ours or a user's."""

from retrograd.testing.check import check_grads, check_op
from retrograd.testing.compare import assert_close

__all__ = ["assert_close", "check_grads", "check_op"]
