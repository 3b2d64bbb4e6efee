"""Which groups are Muster's: by their names, and never that of Muster's own nodes."""

from collections.abc import Callable
from typing import Final

from muster.coordinator.core.model.patterns import compile_pattern

MOST_REMEMBERED: Final = 100_000


def groups_by_name(groups: str, but: str, cluster: str) -> Callable[[str], bool]:
    """groups, but: `engine.kafka.groups` and `.groups.except`, over the whole group id; an empty exception is none.
    cluster: `engine.kafka.cluster`. Raises ValueError.

    >>> ours = groups_by_name("shop-.*", "shop-old-.*", "muster")
    >>> [name for name in ("shop-1", "shop-old-1", "my-shop-1", "muster.nodes") if ours(name)]
    ['shop-1']
    """
    wanted, unwanted = compile_pattern(groups), compile_pattern(but) if but else None
    nodes = f"{cluster}.nodes"
    known: dict[str, bool] = {}

    def ours(group: str) -> bool:
        found = known.get(group)
        if found is None:
            found = group != nodes and wanted.fullmatch(group) is not None
            found = found and (unwanted is None or unwanted.fullmatch(group) is None)
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            known[group] = found
        return found

    return ours
