"""The clock by which leases count."""

import time

import pytest

from muster.coordinator.edge import cluster_view


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
def test_a_lease_does_not_outlast_the_machines_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-G4: the monotonic clock of Linux stands still meanwhile."""
    slept = {time.CLOCK_BOOTTIME: 3_600_000_000_000, time.CLOCK_MONOTONIC: 0}
    monkeypatch.setattr(time, "clock_gettime_ns", slept.__getitem__)
    assert cluster_view.monotonic_ms() == 3_600_000
