"""Which partitions a group began with, as a note beside what it has committed. Pure.

Options that say where to begin are about the partitions there were when a group began; what came later is read from its
beginning. Drivers that begin a group together commit each for its own partitions, one sooner than the other, so that an
offset that is missing tells nothing. The note does: `partitions=3`, on every offset of the topic.
"""

import re
from collections.abc import Iterable, Mapping

NotedPartition = tuple[str, int]
NOTE = re.compile(r"partitions=([0-9]{1,9})")


def write_note(count: int | None) -> str:
    """
    >>> write_note(3), write_note(None)
    ('partitions=3', '')
    """
    return "" if count is None else f"partitions={count}"


def read_notes(notes: Iterable[tuple[NotedPartition, str]]) -> dict[str, int]:
    """How many partitions each topic had when the group began, where anybody noted it; the fewest of several.

    >>> read_notes([(("t", 0), "partitions=4"), (("t", 1), "partitions=3"), (("u", 0), "")])
    {'t': 3}
    """
    counts: dict[str, int] = {}
    for (topic, _), note in notes:
        if found := NOTE.fullmatch(note):
            counts[topic] = min(int(found[1]), counts.get(topic, int(found[1])))
    return counts


def find_initial_counts(
    noted: Mapping[str, int], committed: Iterable[NotedPartition], present: Mapping[str, int]
) -> dict[str, int]:
    """How many partitions each topic had when the group began.

    Without a note a topic of which something is committed began with nothing that is not: somebody else read it, who
    settles all partitions at once. A topic of which nothing is committed begins now.

    >>> find_initial_counts({"t": 3}, [("t", 0), ("u", 0)], {"t": 4, "u": 2, "v": 5})
    {'t': 3, 'u': 0, 'v': 5}
    """
    read = {topic for topic, _ in committed}
    return {topic: noted.get(topic, 0 if topic in read else count) for topic, count in sorted(present.items())}
