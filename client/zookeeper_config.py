"""The properties of a consumer of the ZooKeeper era: the names and defaults of that time."""

import re
from typing import Literal

from pydantic import BaseModel, Field, field_validator

INT_MAX = 2**31 - 1
COMMIT_INTERVAL_MS = 60_000
"""How often a consumer of that era committed by itself."""


NOT_IN_ZNODES = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff/]")
ZNODE_NAME = "without / and control characters, and neither . nor .."


def is_znode_name(name: str) -> bool:
    """Whether ZooKeeper takes it as one part of a path.

    >>> [is_znode_name(name) for name in ("orders", "a b", "", ".", "..", "a/b", "a" + chr(1))]
    [True, True, False, False, False, False, False]
    """
    return name not in ("", ".", "..") and NOT_IN_ZNODES.search(name) is None


class ZookeeperProperties(BaseModel):
    """What `group.protocol=zookeeper` understands, and what a group on its way out of ZooKeeper needs."""

    zookeeper_connect: str | None = Field(None, description="HOST:PORT,HOST:PORT/CHROOT of the ensemble.")
    zookeeper_session_timeout_ms: int = Field(
        6_000, ge=1, le=INT_MAX, description="Silence after which ZooKeeper gives a consumer up."
    )
    zookeeper_connection_timeout_ms: int = Field(
        6_000, ge=1, le=INT_MAX, description="How long the first connection to ZooKeeper may take."
    )
    zookeeper_sync_time_ms: int = Field(
        2_000, ge=0, le=INT_MAX, description="How far a server of the ensemble may be behind its leader."
    )
    rebalance_max_retries: int = Field(
        4, ge=0, le=10_000, description="Further attempts of a rebalance that met claims of others."
    )
    rebalance_backoff_ms: int | None = Field(
        None, ge=1, le=INT_MAX, description="The wait between those attempts; default zookeeper.sync.time.ms."
    )
    consumer_id: str | None = Field(
        None, max_length=255, description="A name to register under instead of one made from host, time and chance."
    )
    num_streams: int = Field(
        1, ge=1, le=1_000, description="How often the consumer takes part in the sharing: a share for each stream."
    )
    offsets_storage: Literal["zookeeper", "kafka"] = Field(
        "zookeeper", description="Where positions are kept: zookeeper, or kafka (the group's coordinator)."
    )
    dual_commit_enabled: bool | None = Field(
        None,
        description="Commit to both stores and begin at the larger offset; default true with offsets.storage=kafka.",
    )

    @field_validator("zookeeper_connect")
    @classmethod
    def _check_connect(cls, value: str | None) -> str | None:
        if value is None:
            return None
        # The settings of a node cost more to import than all else that a client needs.
        from muster.coordinator.config import parse_connect

        try:
            return str(parse_connect(value))
        except ValueError as error:
            raise ValueError(f"expected {error}") from None

    @field_validator("consumer_id")
    @classmethod
    def _check_id(cls, value: str | None) -> str | None:
        if value is not None and not is_znode_name(value):
            raise ValueError(f"expected a name {ZNODE_NAME}, of one character or more; or leave it out")
        return value

    @property
    def backoff_ms(self) -> int:
        return self.rebalance_backoff_ms or max(1, self.zookeeper_sync_time_ms)

    @property
    def commits_twice(self) -> bool:
        return self.offsets_storage == "kafka" if self.dual_commit_enabled is None else self.dual_commit_enabled
