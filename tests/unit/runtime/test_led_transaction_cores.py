"""In which life a shard of transactional ids is once it is loaded (TX-N1, TX-N4), alone and among nodes."""

import pytest

from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import Loaded
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.transaction_shards import LedTransactionCores, TransactionCores, TransactionShardCore
from muster.coordinator.transactions.events import InitProducerId, TransactionsLoaded
from muster.coordinator.transactions.state import TransactionLimits

NEWEST = 7
"""The number of the newest connection at the time of a load."""
SHARD = 3


def loaded(cores: TransactionCores) -> TransactionShardCore:
    core = cores(Limits(), SHARD)
    core.step(Loaded(), 0)
    return core


def begun(cores: TransactionCores) -> TransactionsLoaded:
    """What the next load of the shard is told."""
    event = cores(Limits(), SHARD)._event_of(Loaded())
    assert isinstance(event, TransactionsLoaded)
    return event


def init(core: TransactionShardCore, connection: int) -> Reply | None:
    effects = core.step(InitProducerId(1, "A", 60_000, fresh_id=9, connection=connection), 0)
    return next((reply for _, reply in effects.replies), None)


@pytest.mark.parametrize(
    ("epoch", "loads_before", "newest"),
    [(0, 0, -1), (0, 1, NEWEST), (1, 0, NEWEST), (5, 2, NEWEST)],
    ids=["nobody led before", "loaded again", "another node may have led", "led and loaded again"],
)
def test_connections_that_are_older_than_a_reign_count_as_overtaken(epoch: int, loads_before: int, newest: int) -> None:
    cores = LedTransactionCores(TransactionLimits(), lambda: NEWEST, lambda shard: epoch)
    for _ in range(loads_before):
        begun(cores)
    event = begun(cores)
    assert event.newest_connection == newest
    assert event.coordinator_epoch == epoch, "what its markers carry"
    assert event.life == loads_before + 1
    assert not event.orphans_follow, "nobody tells it of any"


def test_a_request_by_an_older_connection_is_not_performed_and_one_by_a_newer_is() -> None:
    cores = LedTransactionCores(TransactionLimits(), lambda: NEWEST, lambda shard: 1)
    late = init(loaded(cores), NEWEST)
    assert late is not None
    assert late.close_connection  # type: ignore[union-attr]
    performed = init(loaded(cores), NEWEST + 1)
    assert performed is not None
    assert performed.code is ErrorCode.NONE
    assert not performed.close_connection  # type: ignore[union-attr]


def test_a_shard_that_was_lost_while_it_was_loaded_has_no_epoch_below_all() -> None:
    assert begun(LedTransactionCores(TransactionLimits(), lambda: NEWEST, lambda shard: -1)).coordinator_epoch == 0


def test_a_node_on_its_own_is_told_of_open_transactions_first() -> None:
    cores = TransactionCores(TransactionLimits(), lambda: NEWEST)
    assert begun(cores).newest_connection == -1
    again = begun(cores)
    assert again.newest_connection == NEWEST
    assert again.orphans_follow
