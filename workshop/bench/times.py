"""Processor time of processes with all that came of them: a JVM, its Python daemons, and what those forked."""

import os
from pathlib import Path

PROC = Path("/proc")


def process_tree_cpu_s(root: int) -> float:
    """Processor seconds of a process and its descendants so far, those included that have ended and were waited for."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (fields := read_stat_fields(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, rest = 0.0, [root]
    while rest:
        pid = rest.pop()
        total += used.get(pid, 0.0)
        rest += children.get(pid, [])
    return total


def read_stat_fields(process: Path) -> list[str]:
    """What stands behind the name in `stat`, state first; nothing for a process that is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
