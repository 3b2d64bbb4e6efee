"""Logs stay for long, and go without the collector of garbage: it passes over them."""

import gc
from typing import Final

FROZEN_AT_ONCE: Final = 256
"""Logs that have come to be, and are there yet, since the collector was last told to pass over what there is."""

ALL_LOOKED_AT: Final = 50_000
"""Logs that have gone since everything was last looked through. That holds everything up for as long as there are
objects: 50 ms for 10,000 partitions, seconds for millions of positions. So it is seldom, however much topics come and
go; what may stay as garbage until then is what was on its way at some 200 moments.
"""


class LogFreezer:
    """Hears of logs that are made and that go, one change of topics at a time, in the thread that makes them.

    Looking through 10,000 takes the collector a tenth of a second, in which nothing else goes on. What is garbage by
    then would stay for ever, so it is collected first: that looks at what is new since the last time.

    What is on its way at that moment (requests, connections) is passed over as well, and stays if it ends as garbage
    that only the collector finds. So topics that come and go do not count; and where very many have gone,
    everything is looked through.
    """

    def __init__(self) -> None:
        self._new = 0
        self._gone = 0

    def changed(self, count: int) -> None:
        """So many logs were made; negative: are gone."""
        self._new = max(0, self._new + count)
        self._gone += max(0, -count)
        if self._new >= FROZEN_AT_ONCE:
            if self._gone >= ALL_LOOKED_AT:
                gc.unfreeze()
                self._gone = 0
            self._new = 0
            gc.collect()
            gc.freeze()
