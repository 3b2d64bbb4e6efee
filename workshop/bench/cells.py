"""The grid: what is loaded onto a node in each cell, and which smaller cell it is held against. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

KAFKA, GRPC = "kafka", "grpc"
PARTITIONS: Final = 1_000
"""Where partitions are not what grows; also the most that one topic has."""


@dataclass(frozen=True, slots=True)
class GrowthCell:
    """What a node carries: so many members by one door, in so many groups, which share so many partitions."""

    door: str
    members: int
    groups: int
    partitions: int

    @property
    def label(self) -> str:
        """
        >>> GrowthCell("kafka", 50_000, 1, 1_000).label
        'kafka, 50,000 members, 1 group, 1,000 partitions'
        """
        groups = f"{self.groups:,} group{'s' if self.groups > 1 else ''}"
        return f"{self.door}, {self.members:,} members, {groups}, {self.partitions:,} partitions"

    @property
    def of_group(self) -> int:
        """Members of one group."""
        return self.members // self.groups


@dataclass(frozen=True, slots=True)
class TopicSlice:
    """Which partitions a group reads: `width` of them in a row, from `first` on, around the end."""

    first: int
    width: int

    def pieces(self, members: int, turned: int, partitions: int) -> list[dict[str, list[int]]]:
        """What each member is given: as many each as it comes out, in order; a turn later all of it moves on by one.

        >>> TopicSlice(998, 4).pieces(2, 0, 1_000)
        [{'growth-0': [998, 999]}, {'growth-0': [0, 1]}]
        >>> TopicSlice(998, 4).pieces(2, 1, 1_000)
        [{'growth-0': [0, 1]}, {'growth-0': [998, 999]}]
        """
        found = []
        for number in range(members):
            place = (number + turned) % members
            piece: dict[str, list[int]] = {}
            for at in range(place * self.width // members, (place + 1) * self.width // members):
                topic, partition = divmod((self.first + at) % partitions, PARTITIONS)
                piece.setdefault(f"growth-{topic}", []).append(partition)
            found.append(piece)
        return found

    def topics(self, partitions: int) -> list[str]:
        """
        >>> TopicSlice(1_500, 1_000).topics(10_000)
        ['growth-1', 'growth-2']
        """
        last = self.first + self.width - 1
        numbers = range(self.first // PARTITIONS, last // PARTITIONS + 1)
        return list(dict.fromkeys(f"growth-{number % -(-partitions // PARTITIONS)}" for number in numbers))


def slice_of_group(cell: GrowthCell, group: int) -> TopicSlice:
    """Groups divide the partitions among themselves; a group has at least one for each member, while there are so many.

    >>> slice_of_group(GrowthCell(KAFKA, 1_000, 100, 1_000), 3), slice_of_group(GrowthCell(KAFKA, 50_000, 10_000,
    ... 1_000), 400)
    (TopicSlice(first=30, width=10), TopicSlice(first=0, width=5))
    """
    width = min(cell.partitions, max(cell.partitions // cell.groups, cell.of_group))
    return TopicSlice(group * width % cell.partitions, width)


def all_cells() -> list[GrowthCell]:
    """All cells, small ones first: a suite that runs out of its time leaves out large ones."""
    loads = [(1_000, 1), (1_000, 100), (10_000, 1), (10_000, 100), (10_000, 10_000)]
    most = [(50_000, 100), (50_000, 10_000), (50_000, 1)]
    cells = [GrowthCell(door, *load, PARTITIONS) for load in loads for door in (KAFKA, GRPC)]
    cells += [GrowthCell(door, 1_000, 1, count) for count in (10_000, 100_000) for door in (KAFKA, GRPC)]
    return cells + [GrowthCell(door, *load, PARTITIONS) for door in (KAFKA, GRPC) for load in most]


def small_cells() -> list[GrowthCell]:
    """The same in miniature: of speed it says nothing."""
    return [
        GrowthCell(door, *load) for door in (KAFKA, GRPC) for load in ((4, 1, 10), (20, 1, 10), (20, 5, 10), (4, 1, 40))
    ]


def next_smaller_cell(cell: GrowthCell, cells: Sequence[GrowthCell]) -> tuple[GrowthCell, float] | None:
    """The next smaller cell in members, else in partitions, all else alike; and how many times as large this one is.

    >>> next_smaller_cell(GrowthCell(KAFKA, 50_000, 100, 1_000), all_cells())
    (GrowthCell(door='kafka', members=10000, groups=100, partitions=1000), 5.0)
    >>> next_smaller_cell(GrowthCell(GRPC, 1_000, 1, 100_000), all_cells())
    (GrowthCell(door='grpc', members=1000, groups=1, partitions=10000), 10.0)
    >>> next_smaller_cell(GrowthCell(KAFKA, 10_000, 10_000, 1_000), all_cells())
    """
    alike = [each for each in cells if (each.door, each.groups) == (cell.door, cell.groups)]
    fewer = [e for e in alike if e.partitions == cell.partitions and e.members < cell.members]
    if fewer:
        peer = max(fewer, key=lambda each: each.members)
        return peer, cell.members / peer.members
    less = [e for e in alike if e.members == cell.members and e.partitions < cell.partitions]
    if less:
        peer = max(less, key=lambda each: each.partitions)
        return peer, cell.partitions / peer.partitions
    return None
