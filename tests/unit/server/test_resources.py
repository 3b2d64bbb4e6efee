"""What a node tells of its process: read when it is asked, left out where nothing is to be read."""

import os
from pathlib import Path
from types import SimpleNamespace

from muster.coordinator.runtime.node_status import Metrics
from muster.coordinator.server.backend.upkeep import ProcessResources, disk_bytes, memory_bytes


def test_a_process_knows_what_it_has(tmp_path: Path) -> None:
    metrics = Metrics(stalls=2, stalled_ms=900)
    had = ProcessResources(tmp_path, 1_000, SimpleNamespace(lag_ms=7), metrics).measure_resources()
    assert 0 < had.open_descriptors < had.descriptor_limit
    assert 0 < had.resident_bytes < had.memory_bytes
    assert 0 < had.disk_free_bytes <= had.disk_total_bytes
    assert (had.loop_late_ms, had.stalls, had.stalled_ms, had.started_at_ms) == (7, 2, 900, 1_000)


def test_a_descriptor_more_is_counted(tmp_path: Path) -> None:
    resources = ProcessResources(tmp_path, 0, SimpleNamespace(lag_ms=0), Metrics())
    before = resources.measure_resources().open_descriptors
    with (tmp_path / "open").open("w"):
        assert resources.measure_resources().open_descriptors == before + 1


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path) -> None:
    had = ProcessResources(
        tmp_path / "gone", 0, SimpleNamespace(lag_ms=0), Metrics(), process=tmp_path / "nothing"
    ).measure_resources()
    assert not had.HasField("open_descriptors")
    assert not had.HasField("resident_bytes")
    assert not had.HasField("disk_free_bytes")
    assert disk_bytes(tmp_path / "gone") == (None, None)


def test_a_control_group_may_have_less_than_the_machine(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, unlimited = tmp_path / "memory.max", tmp_path / "max"
    limit.write_text("1048576\n")
    unlimited.write_text("max\n")
    assert memory_bytes((limit,)) == 1 << 20
    assert memory_bytes((unlimited,)) == machine
    assert memory_bytes((unlimited, limit)) == 1 << 20
