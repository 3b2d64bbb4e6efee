"""Members by column, with their claims as positions on an axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import overload

import numpy as np

from muster.assignors.data.axis import Axis, Ints
from muster.assignors.data.values import Member


@dataclass(frozen=True)
class TableMember:
    """What a `MemberTable` knows of a member besides its topics and claims."""

    id: str
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes = b""


class OwnedView(Mapping[str, Sequence[int]]):
    """{topic: partitions} of one member's claims, read from positions on an axis when looked at."""

    __slots__ = ("_axis", "_cells", "_row")

    def __init__(self, axis: Axis, row: Ints) -> None:
        self._axis, self._row = axis, row
        self._cells: dict[str, list[int]] | None = None

    def _read(self) -> dict[str, list[int]]:
        if self._cells is None:
            self._cells = self._axis.split(np.sort(self._row))
        return self._cells

    def __getitem__(self, topic: str) -> Sequence[int]:
        return self._read()[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())


class MemberTable(Sequence[Member]):
    """Members by column; give it to `Snapshot` in place of a list. Reads as a sequence of `Member`.

    `subscriptions` are the distinct topic lists, `subscription_of` says who has which. `claims` holds
    positions on `axis` for each member, or None for a member that reports nothing.
    """

    def __init__(
        self,
        rows: Sequence[TableMember],
        subscriptions: Sequence[tuple[str, ...]],
        subscription_of: Sequence[int],
        axis: Axis,
        claims: Sequence[Ints | None],
    ) -> None:
        if not len(rows) == len(subscription_of) == len(claims):
            raise ValueError(
                f"columns differ in length: {len(rows)} members, {len(subscription_of)} subscriptions, "
                f"{len(claims)} claims"
            )
        self.rows, self.axis, self.claims = rows, axis, claims
        self.subscriptions, self.subscription_of = subscriptions, subscription_of

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Member]:
        for row, kind, claim in zip(self.rows, self.subscription_of, self.claims, strict=True):
            yield self._member(row, kind, claim)

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> list[Member]: ...
    def __getitem__(self, index: int | slice) -> Member | list[Member]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._member(self.rows[index], self.subscription_of[index], self.claims[index])

    def _member(self, row: TableMember, kind: int, claim: Ints | None) -> Member:
        return Member(
            id=row.id,
            topics=self.subscriptions[kind],
            owned=None if claim is None else OwnedView(self.axis, claim),
            generation=row.generation,
            instance_id=row.instance_id,
            rack=row.rack,
            user_data=row.user_data,
        )


class MemberList(list[Member]):
    """The members of a table, for those who expect a list. As long as nobody changes it, the table stands for it."""

    def __init__(self, table: MemberTable) -> None:
        super().__init__(table)
        self.table = table
        self._made = tuple(self)

    @property
    def untouched(self) -> bool:
        return len(self) == len(self._made) and all(map(is_, self, self._made))
