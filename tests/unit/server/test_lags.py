"""The lags that an assignor on the coordinator is given."""

from muster.assignors.api import Snapshot
from muster.coordinator.server.node.lags import lags_of


def test_lag_counts_from_the_commit_and_without_one_from_the_start() -> None:
    commits = {0: 45, 1: 5}
    found = lags_of(Snapshot({"t": 3}, []), lambda topic, number: commits.get(number), lambda topic, number: (10, 50))
    assert found == {"t": [5, 40, 40]}
