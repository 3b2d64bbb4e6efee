"""How fast this machine is beside the one on which the limits in microseconds and milliseconds were set.

A limit in microseconds says something about a program only where the machine is known. There a library of others,
written in Python as a node is, coded one message in a known time: what the same takes here tells how to read the limit.
"""

import statistics
import time

from muster.workshop.bench.rows import BenchRow, less_is_better

CODED_US = 5.5
"""What kafka-python 3.0.12 took there to encode and decode a Heartbeat request of version 4."""

CALLS = 500


class MachinePace:
    """How slow this one is. Looked at again and again beside what is measured: a shared machine changes its pace."""

    def __init__(self) -> None:
        self._looks: list[float] = []

    def look(self) -> None:
        self._looks.append(measure_coding_us() / CODED_US)

    def slower(self) -> float:
        """By how much a limit is longer here than where it was set; at least 1: a fast machine shortens none."""
        return max(1.0, statistics.median(self._looks))


def measure_coding_us() -> float:
    """Microseconds of processor time to encode and decode one Heartbeat."""
    from kafka.protocol.consumer import HeartbeatRequest

    beat = HeartbeatRequest(
        version=4, group_id="bench", generation_id=3, member_id="bench-" + "0" * 36, group_instance_id=None
    )
    before = time.thread_time_ns()
    for _ in range(CALLS):
        HeartbeatRequest.decode(beat.encode(), version=4)
    return (time.thread_time_ns() - before) / CALLS / 1e3


def limit_row(case: str, value: float, unit: str, limit: float, machine: MachinePace) -> BenchRow:
    """A cost against a limit in the same unit, read for this machine."""
    slower = machine.slower()
    peer = f"the limit of {limit:g}, on a machine {slower:.2f} times as slow"
    return less_is_better(case, value, unit, peer, limit * slower, 1.0)
