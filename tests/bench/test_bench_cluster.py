"""What `muster bench cluster` measures without nodes of its own."""

from pathlib import Path

from muster.coordinator.bench.cluster import takeover


def test_a_warm_takeover_is_measured_beside_a_cold_one(tmp_path: Path) -> None:
    row = takeover.measure(str(tmp_path / "shard"), records=3_000)
    assert row.case == takeover.NAME
    assert row.value > 0
    assert row.peer_value is not None
    assert row.goal == 20.0
