"""Which batches a reader of committed data drops (KIP-98). Pure."""

from collections.abc import Iterable, Sequence

from muster.storage.logs.control import read_marker
from muster.storage.records.batch import BatchView


def drop_aborted(views: Sequence[BatchView], aborted: Iterable[tuple[int, int]]) -> list[BatchView]:
    """The batches that are left when transactions are dropped that a node named as aborted.

    `aborted` are (producer id, first offset). A producer's data is dropped from there to its abort marker.
    """
    coming = sorted(aborted, key=lambda entry: entry[1])
    if not coming:
        return list(views)
    dropping: set[int] = set()
    kept = []
    for view in views:
        while coming and coming[0][1] <= view.last_offset:
            dropping.add(coming.pop(0)[0])
        if view.control:
            marker = read_marker(view)
            if marker is not None and marker.aborted:
                dropping.discard(view.producer_id)
        elif not (view.transactional and view.producer_id in dropping):
            kept.append(view)
    return kept
