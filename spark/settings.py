"""What a task is told about fetching, beside what to fetch."""

from dataclasses import dataclass

from muster.client.connection import ConnectionConfig


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What a task needs to know beside its ranges; small, because it travels with every task."""

    connection: ConnectionConfig
    columns: tuple[str, ...]
    rows: int
    patience_ms: int
    max_bytes: int
    max_partition_bytes: int
    committed: bool
    fail_on_data_loss: bool
