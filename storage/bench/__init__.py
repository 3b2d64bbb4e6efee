"""`muster bench log`: what the log costs, each case as a ratio to a named limit or peer measured in the same run.

Turns of ours and the peer alternate and their ratio is the median over the turns, so that a busy machine slows both.
Everything is written below a directory of the caller's and removed again.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator

from muster.storage.bench import looking, memory, speed
from muster.storage.bench.case import Case

CASES: dict[str, Callable[[str, str, int], Iterator[Case]]] = {
    "append": speed.append,
    "append with the look": looking.look,
    "group commit, 32 callers": speed.commit,
    "fetch to a socket": speed.fetch,
    "records of 100 bytes": speed.codec,
    "a 1 MB batch to Arrow": speed.columnar,
    "recovery scan": speed.recovery,
    "an idle partition": memory.idle,
    "memory": memory.flat,
}


def run(only: str | None = None, directory: str | None = None, rounds: int = 7) -> Iterator[Case]:
    """Measure the cases whose name contains `only`, one after the other; cases without their peer are left out."""
    for name, measure in CASES.items():
        if only is None or only in name:
            home = tempfile.mkdtemp(prefix="muster-bench-", dir=directory)
            try:
                yield from measure(name, home, rounds)
            finally:
                shutil.rmtree(home, ignore_errors=True)
