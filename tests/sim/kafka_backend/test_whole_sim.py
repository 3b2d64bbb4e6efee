"""Seeds of three whole nodes over one Kafka: the real engine, what performs the rules of ownership, and members."""

from unittest.mock import patch

import pytest

from muster.coordinator.kafka_backend.shard_owner import ShardOwner
from muster.coordinator.kafka_backend.transaction_log import ClientTransactions
from tests.sim.kafka_backend.whole import run_whole_seed


@pytest.mark.parametrize("seed", [0])
def test_three_whole_nodes_in_bad_weather(seed: int) -> None:
    result = run_whole_seed(seed)
    assert not result.violation
    assert result.census["commits acked"] > 100
    assert result.census["looks"] > 10
    assert result.census["txn committed"] > 5


def test_the_same_seed_of_whole_nodes_is_the_same_run() -> None:
    assert run_whole_seed(3, duration_ms=12_000) == run_whole_seed(3, duration_ms=12_000)


def test_an_answer_before_its_acknowledgement_is_caught() -> None:
    honest = ShardOwner.wrote

    def wrote(self: ShardOwner, shard: int, position: int) -> None:
        honest(self, shard, position)
        self._soon(lambda: self._committed(shard, position))

    with patch.object(ShardOwner, "wrote", wrote):
        assert run_whole_seed(0).violation


def test_a_marker_of_which_the_core_does_not_hear_is_caught() -> None:
    with patch.object(ClientTransactions, "ended", lambda self, effect: None):
        assert "E4" in run_whole_seed(0).violation
