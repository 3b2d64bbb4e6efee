"""Logs stay for long, and go without the collector of garbage: it passes over them."""

import gc
from typing import Final

FROZEN_AT_ONCE: Final = 256
"""Logs made since the collector was last told to pass over what there is."""


class LongLived:
    """Hears of logs that are made, in the thread that makes them, one change of topics at a time.

    Looking through 10,000 takes the collector a tenth of a second, in which nothing else goes on. What is garbage by
    then would stay for ever, so it is collected first: that looks at what is new since the last time.
    """

    def __init__(self) -> None:
        self._new = 0

    def made(self, count: int) -> None:
        self._new += count
        if self._new >= FROZEN_AT_ONCE:
            self._new = 0
            gc.collect()
            gc.freeze()
