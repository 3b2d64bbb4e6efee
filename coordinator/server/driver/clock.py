"""The node's one clock: wall time at start, carried on by the monotonic clock."""

import time


class NodeClock:
    """Epoch milliseconds that never jump, so that a clock set back or forth expires nobody's session.

    Drift against wall time over the node's life only shows in stored timestamps.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._offset_s) * 1000)
