"""How the rules write figures."""

from collections.abc import Sequence

from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance, RebalanceCause

MOST_NAMES = 5


def seconds(ms: float) -> str:
    """
    >>> seconds(1500), seconds(721), seconds(45_000), seconds(300_000)
    ('1.5 s', '0.7 s', '45 s', '5 min')
    """
    if ms >= 120_000 and ms % 60_000 == 0:
        return f"{ms // 60_000:.0f} min"
    return f"{round(ms / 1000, 1):g} s" if ms < 10_000 else f"{ms / 1000:.0f} s"


def some(names: Sequence[object]) -> str:
    """A few of them, and how many more there are.

    >>> some(["a", "b"]), some("abcdefg")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    shown = ", ".join(str(name) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def number_entries(entries: Sequence[Rebalance]) -> str:
    """Ledger entries by number, as `muster groups explain` knows them."""
    plural = "s" if len(entries) != 1 else ""
    return f"rebalance{plural} {some([f'#{entry.number}' for entry in entries])}"


def list_culprits(entries: Sequence[Rebalance]) -> list[str]:
    """Clients and hosts, each once, newest first."""
    names = (f"{e.culprit_client_id or e.culprit} at {e.culprit_client_host or 'unknown host'}" for e in entries)
    return list(dict.fromkeys(names))


def cause_name(entry: Rebalance) -> str:
    """`session_expired`, as logs and metrics write it."""
    return RebalanceCause.Name(entry.cause).removeprefix("REBALANCE_CAUSE_").lower()
