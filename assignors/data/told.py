"""What a recorded snapshot says among its options that no assignor was told."""

from typing import Final

FALLBACK: Final = "fallback"
"""The assignor had failed: what stood in for it."""
REASON: Final = "reason"
"""Why it had failed."""
HELD: Final = "held"
"""The assignor's word was not the last: what an operator held of the group."""
TOLD_BESIDE: Final = frozenset({FALLBACK, REASON, HELD})
