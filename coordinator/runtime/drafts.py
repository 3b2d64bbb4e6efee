"""What a turn decided, made bytes a portion at a time where it is long: others have their turns in between.

However long it takes, it is one append: what one event brought is in the log as a whole, or not at all.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from muster.coordinator.core.model.core_records import OffsetsStored, Record
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.ports import Entry


class AppendDraft:
    """Records of one shard on their way into one append; `groups` is the log's place for them (`GroupLog.draft`)."""

    def __init__(self, records: Sequence[Record], at_once: int, groups: list[Entry]) -> None:
        self.records = records
        self.groups = groups
        self.ledger: list[Entry] = []
        self._portions = split_into_portions(records, at_once)

    def write_on(self) -> bool:
        """Make bytes of the next portion; False: there is none. Raises ValueError for what the format cannot hold."""
        portion = next(self._portions, None)
        if portion is None:
            return False
        encoded = encode(portion)
        self.groups.extend(encoded.groups)
        self.ledger.extend(encoded.ledger)
        return True


def count_entries(records: Sequence[Record]) -> int:
    """How many entries of the log they come to, about."""
    count = len(records)
    for record in records:
        if type(record) is OffsetsStored:  # cheaper than isinstance: every turn asks
            count += len(record.offsets)
    return count


def split_into_portions(records: Sequence[Record], at_once: int) -> Iterator[list[Record]]:
    """The records in their order, in lists of at most so many entries of the log."""
    portion, room = list[Record](), at_once
    for record in split_commits(records, at_once):
        size = len(record.offsets) if isinstance(record, OffsetsStored) else 1
        if portion and size > room:
            yield portion
            portion, room = [], at_once
        portion.append(record)
        room -= size
    if portion:
        yield portion


def split_commits(records: Sequence[Record], at_once: int) -> Iterator[Record]:
    """The records in their order; what one commit brought as several, where it is more than so many positions."""
    for record in records:
        if isinstance(record, OffsetsStored) and len(record.offsets) > at_once:
            left = iter(record.offsets.items())
            while some := dict(islice(left, at_once)):
                yield OffsetsStored(record.group_id, some)
        else:
            yield record
