"""Who has which partition of a group, whatever its kind, as far as balance is concerned."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from muster.coordinator.core.model.plan import Plan

Owners: TypeAlias = Mapping[str, Mapping[int, str]]
"""topic -> partition -> member"""


class OwnedPartitions(NamedTuple):
    """The owners, and what they follow from where that is known: nothing has to be read anew as long as it is equal."""

    owners: Owners
    stamp: tuple[object, ...] = ()


NOBODY_OWNS = OwnedPartitions({})


def owners_by_partition(plan: Plan) -> Owners:
    """
    >>> owners_by_partition({"a": {"t": (0, 2)}, "b": {"t": (1,)}})
    {'t': {0: 'a', 2: 'a', 1: 'b'}}
    """
    rows: dict[str, dict[int, str]] = {}
    for member, share in plan.items():
        for topic, partitions in share.items():
            row = rows.setdefault(topic, {})
            for partition in partitions:
                row[partition] = member
    return rows
