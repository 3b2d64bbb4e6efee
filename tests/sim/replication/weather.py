"""What happens to a simulated cluster, and how often."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weather:
    """How often what happens, in milliseconds between two of a kind; 0: never."""

    fault_every_ms: int = 1_500
    lasts_ms: int = 40_000
    nodes: int = 3
    kinds: tuple[str, ...] = (
        "kill", "kill", "power", "freeze", "freeze", "cut", "one way", "zookeeper cut", "client cut", "disk", "away",
        "bounce", "slow", "lossy", "broken log", "full", "delete topic", "settings", "all power", "drain", "elect",
        "elect", "reassign", "reassign",
    )  # fmt: skip
    unclean: bool = False
    asked: bool = False
    """Unclean elections are asked for by operators, and not set."""
    hasty: bool = False
    """There is a topic that acknowledges before it flushes."""
    groups: int = 0
    """So many, with members; 0: records are written to the shards' logs as to any."""
    session_ms: int = 0
    """How long members may be silent; 0: longer than any run, so that no member is ever missed."""
    ids: int = 0
    """So many transactional ids, with producers."""
    positions: bool = False
    """Their transactions carry positions of groups without members."""
    workers: int = 0
    """So many of these ids are of workers, which read inputs as members of a group; then all are. They need sessions
    (`session_ms`) that end within the run."""
    levels: tuple[int, ...] = (0, 2)
    """Of these producers, in turn."""
    late_markers: float = 0.1
    """How often a marker is held up on its way."""
    stall_rate: float = 0.0
    """How often its coordinator stands still then, until another node coordinates."""
    move_rate: float = 0.0
    """How often the node that coordinates a group goes just behind positions in a transaction, or its marker."""
    dark_rate: float = 0.0
    """How often the whole house goes dark just behind the first record of a transaction in a log."""
    real: bool = False
    """The storage engine on files in memory, instead of a model of logs."""
