"""Where logs begin and end, as a test says it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[str, int]


@dataclass
class SaidExtents:
    """`end_of` gives the ends of partitions; `begins` has the starts that are not 0."""

    end_of: Callable[[Sequence[Place]], list[int]]
    begins: Mapping[Place, int] = field(default_factory=dict)
    ahead: Callable[[Sequence[Place]], Awaitable[None]] | None = None

    def ends(self, places: Iterable[Place], /) -> list[int]:
        return self.end_of(list(places))

    def starts(self, places: Iterable[Place], /) -> list[int]:
        return [self.begins.get(place, 0) for place in places]
