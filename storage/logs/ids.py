"""Producer ids, never given twice: reserved on disk a block at a time."""

from muster.storage.checkpoint import read_lines, write_lines
from muster.storage.files import Files

BLOCK = 1000
MAX_EPOCH = 32767
_NAME = "producer-id-block"

FENCES_FROM = 1 << 62
"""Producer ids from here up stand for fences: who may write on behalf of a partition of a group."""


def is_fence(producer_id: int) -> bool:
    return producer_id >= FENCES_FROM


class LocalProducerIds:
    """Hands out ids from a block whose end was made durable before the first of it is given."""

    def __init__(self, files: Files, data_dir: str) -> None:
        self._files = files
        self._path = f"{data_dir}/{_NAME}"
        self._next = self._end = 0

    def next(self, known: int, epoch: int) -> tuple[int, int]:
        """The next epoch of `known`, or a fresh id at epoch 0 when it has none or its epochs are used up."""
        if known >= 0 and 0 <= epoch < MAX_EPOCH - 1:
            return known, epoch + 1
        return self._fresh(), 0

    def next_fence(self) -> int:
        """A producer id for a fence, never given before."""
        return FENCES_FROM + self._fresh()

    def _fresh(self) -> int:
        if self._next == self._end:
            lines = read_lines(self._files, self._path, 2)
            first = int(lines[0][1]) if lines else 0
            write_lines(self._files, self._path, [("next", str(first + BLOCK))], 2)
            self._next, self._end = first, first + BLOCK
        self._next += 1
        return self._next - 1
