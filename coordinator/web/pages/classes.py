"""Which colour a figure has: decades of lag and of rate, the same on every picture, so that two groups compare."""

from bisect import bisect_right
from typing import Final

LAG_FROM: Final = (1, 100, 1_000, 10_000, 100_000)
RATE_FROM: Final = (0.01, 1, 10, 100, 1_000)
LAG_WORDS: Final = ("caught up", "1 to 99", "100 to 999", "1,000 to 9,999", "10,000 to 99,999", "100,000 and more")
RATE_WORDS: Final = ("idle", "under 1/s", "1 to 9/s", "10 to 99/s", "100 to 999/s", "1,000/s and more")
UNKNOWN_CLASS: Final = "ln"


def lag_class(lag: int | None) -> str:
    """
    >>> lag_class(0), lag_class(99), lag_class(100), lag_class(10**9), lag_class(None)
    ('l0', 'l1', 'l2', 'l5', 'ln')
    """
    return UNKNOWN_CLASS if lag is None else f"l{bisect_right(LAG_FROM, lag)}"


def rate_class(rate: float | None) -> str:
    """
    >>> rate_class(0.0), rate_class(5.0), rate_class(None)
    ('r0', 'r2', 'ln')
    """
    return UNKNOWN_CLASS if rate is None else f"r{bisect_right(RATE_FROM, rate)}"


def legend(by: str) -> list[tuple[str, str]]:
    """(class, what it stands for), calm first; `by` is lag or rate."""
    letter, words = ("r", RATE_WORDS) if by == "rate" else ("l", LAG_WORDS)
    return [(f"{letter}{number}", word) for number, word in enumerate(words)]
