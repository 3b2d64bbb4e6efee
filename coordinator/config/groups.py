"""Settings of groups and of transactions: session bounds, sizes, assignors, the ledger, offsets, how much may wait.

Classic groups, KIP-848 consumer groups (what members are told, what they may ask for, and how a group changes to that
protocol and back) and central groups each have a model of their own. Offsets: how long they stay, and the internal
topics that hold groups and ledger. Waiting: how many requests, streams and watchers may be parked at once.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from muster.coordinator.config.values import AssignorNames, check_assignor_names, split_list
from muster.storage.settings_text import MAX_INT, NonNegativeInt32, PositiveInt32, SettingsModel, setting

# All groups
# ----------


class GroupCoordinationSettings(SettingsModel):
    group_min_session_timeout_ms: PositiveInt32 = setting(
        6_000, "The shortest session timeout that a member may ask for."
    )
    group_max_session_timeout_ms: PositiveInt32 = setting(
        1_800_000, "The longest session timeout that a member may ask for."
    )
    group_initial_rebalance_delay_ms: NonNegativeInt32 = setting(
        3_000, "How long the first rebalance of an empty group waits for more members to join."
    )
    group_max_size: PositiveInt32 = setting(MAX_INT, "The most members that one group may have.")
    group_ledger_max_entries: Annotated[int, Field(ge=1, le=100_000)] = setting(
        100, "How many rebalances of each group the ledger keeps; the oldest are removed first."
    )
    group_ledger_max_bytes: NonNegativeInt32 = setting(
        32 << 20,
        "About how much memory the ledger of each group may take; the oldest entries are removed first, the newest is "
        "kept.",
    )
    group_ledger_max_snapshot_bytes: NonNegativeInt32 = setting(
        1 << 20, "The largest assignor input that is kept with a rebalance; a larger one is left out."
    )
    group_assignor_deadline_ms: PositiveInt32 = setting(
        10_000, "How long an assignor, or a topic pattern, may run on this node before it is treated as failed."
    )
    group_assignor_isolation: Literal["process", "thread"] = setting(
        "process",
        "Where assignors that are not built in run: in separate processes, which are killed at the deadline, or in "
        "threads of the node, which cannot be stopped.",
    )
    group_assignor_max_memory_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = setting(
        1 << 30, "How much memory the process of an assignor may use beyond what it needs to start."
    )
    group_assignor_max_processes: Annotated[int, Field(ge=1, le=256)] = setting(
        4, "How many assignor processes may exist at a time, idle ones included."
    )
    group_remote_assignors: AssignorNames = setting(
        AssignorNames(""),
        "Assignors that classic members may ask the coordinator to run, besides built-in ones and installed plugins.",
    )

    @property
    def remote_assignors(self) -> tuple[str, ...]:
        return split_list(self.group_remote_assignors)

    @field_validator("group_remote_assignors")
    @classmethod
    def are_known(cls, value: AssignorNames) -> AssignorNames:
        return check_assignor_names(value) if value else value

    @model_validator(mode="after")
    def has_session_bounds(self) -> Self:
        low, high = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if low > high:
            raise ValueError(
                f"group.min.session.timeout.ms is {low}, but group.max.session.timeout.ms is only {high}; "
                "lower the first or raise the second"
            )
        return self


# Consumer groups (KIP-848)
# -------------------------


class ConsumerGroupSettings(SettingsModel):
    group_consumer_session_timeout_ms: PositiveInt32 = setting(
        45_000, "How long a member of a consumer-protocol group may be silent before it is removed."
    )
    group_consumer_min_session_timeout_ms: PositiveInt32 = setting(
        45_000, "The lower bound of group.consumer.session.timeout.ms."
    )
    group_consumer_max_session_timeout_ms: PositiveInt32 = setting(
        60_000, "The upper bound of group.consumer.session.timeout.ms."
    )
    group_consumer_heartbeat_interval_ms: PositiveInt32 = setting(
        5_000, "The heartbeat interval that members of consumer-protocol groups are told."
    )
    group_consumer_min_heartbeat_interval_ms: PositiveInt32 = setting(
        5_000, "The lower bound of group.consumer.heartbeat.interval.ms."
    )
    group_consumer_max_heartbeat_interval_ms: PositiveInt32 = setting(
        15_000, "The upper bound of group.consumer.heartbeat.interval.ms."
    )
    group_consumer_max_size: PositiveInt32 = setting(
        MAX_INT, "The most members that one consumer-protocol group may have."
    )
    group_consumer_assignors: AssignorNames = setting(
        AssignorNames("uniform,range"),
        "The assignors that consumer-protocol groups may ask for; the first is the default.",
    )
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = setting(
        "bidirectional", "Whether groups may change to the consumer protocol (upgrade) and back (downgrade)."
    )
    group_consumer_assignment_interval_ms: NonNegativeInt32 = setting(
        1_000, "The shortest time between two new assignments of one consumer-protocol group."
    )
    group_consumer_min_assignment_interval_ms: NonNegativeInt32 = setting(
        0, "The lower bound of group.consumer.assignment.interval.ms."
    )
    group_consumer_max_assignment_interval_ms: NonNegativeInt32 = setting(
        15_000, "The upper bound of group.consumer.assignment.interval.ms."
    )
    group_consumer_regex_refresh_interval_ms: Annotated[int, Field(ge=10_000, le=MAX_INT)] = setting(
        600_000, "How often the topics that match a subscription's pattern are looked up again."
    )

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        return split_list(self.group_consumer_assignors)

    @field_validator("group_consumer_assignors")
    @classmethod
    def are_assignors(cls, value: AssignorNames) -> AssignorNames:
        return check_assignor_names(value)

    @model_validator(mode="after")
    def is_within_bounds(self) -> Self:
        check_within_bounds(
            "session.timeout",
            self.group_consumer_session_timeout_ms,
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        check_within_bounds(
            "heartbeat.interval",
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        check_within_bounds(
            "assignment.interval",
            self.group_consumer_assignment_interval_ms,
            self.group_consumer_min_assignment_interval_ms,
            self.group_consumer_max_assignment_interval_ms,
        )
        return self


def check_within_bounds(name: str, value: int, low: int, high: int) -> None:
    """Raises ValueError when a group.consumer setting is outside its bounds."""
    if not low <= value <= high:
        raise ValueError(
            f"group.consumer.{name}.ms is {value}, outside {low}..{high} (group.consumer.min.{name}.ms, "
            f"group.consumer.max.{name}.ms); change it or its bounds"
        )


# Central groups
# --------------


class CentralGroupSettings(SettingsModel):
    group_central_rebalance_max_retries: Annotated[int, Field(ge=0, le=1_000)] = setting(
        4, "How often a failed attempt to rebalance a central group is repeated before it is reported."
    )
    group_central_rebalance_backoff_ms: PositiveInt32 = setting(
        2_000, "The pause before a failed attempt to rebalance a central group is repeated."
    )
    group_central_newcomers_delay_ms: Annotated[int, Field(ge=0, le=60_000)] = setting(
        1_000,
        "How long newcomers of a stable central group of more than 100 members wait for those behind the last of them, "
        "so that all others stop once for all of them; ten times as long after the first at most.",
    )
    group_central_max_timed_out_heartbeats: Annotated[int, Field(ge=1, le=1_000)] = setting(
        3, "How many pings in a row a member of a central group may leave unanswered before it is removed."
    )


# Committed offsets and internal topics
# -------------------------------------


class OffsetsSettings(SettingsModel):
    offsets_retention_minutes: PositiveInt32 = setting(
        10_080, "How long committed offsets outlive their group's last member, or their last commit."
    )
    offsets_retention_check_interval_ms: PositiveInt32 = setting(600_000, "How often expired offsets are removed.")
    # In characters, as Kafka counts; four bytes each still fit a stored string.
    offset_metadata_max_bytes: Annotated[int, Field(ge=0, le=8_191)] = setting(
        4_096, "The longest metadata that a client may commit with an offset, in characters."
    )
    offsets_topic_num_partitions: Annotated[int, Field(ge=1, le=10_000)] = setting(
        50, "The number of partitions over which groups are spread; fixed once the data directory exists."
    )
    offsets_topic_segment_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        100 << 20,
        "The segment size of the internal topics; small segments are compacted sooner; one group may keep a quarter "
        "of it.",
    )


# Transactions (KIP-98, KIP-890)
# ------------------------------


class TransactionSettings(SettingsModel):
    transaction_version: Annotated[int, Field(ge=0, le=2)] = setting(
        2,
        "How transactions end: with 2 (KIP-890) each end raises the epoch of its producer, and records add their "
        "partition themselves, for clients that know it; with 0 or 1 all clients go on as before.",
    )
    transaction_max_timeout_ms: PositiveInt32 = setting(
        900_000, "The longest transaction.timeout.ms that a producer may ask for."
    )
    transactional_id_expiration_ms: PositiveInt32 = setting(
        604_800_000, "How long a transactional id is remembered after its last use."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: PositiveInt32 = setting(
        3_600_000, "How often expired transactional ids are removed."
    )
    transaction_state_log_num_partitions: Annotated[int, Field(ge=1, le=10_000)] = setting(
        50, "The number of partitions over which transactional ids are spread; fixed once the first id was given."
    )
    transaction_state_log_segment_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        100 << 20, "The segment size of the log of transactional ids; small segments are compacted sooner."
    )
    transaction_max_ids: PositiveInt32 = setting(
        100_000, "How many transactional ids may be known at a time; further ones are refused for the moment."
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        "Whether the coordinator is asked before a log takes the first records of a transaction; without it, delayed "
        "records of a transaction that has ended may hold readers back.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: PositiveInt32 = setting(
        100, "How long a request may wait on the node for the transaction before it to complete."
    )
    transaction_newest_connection: bool = setting(
        True,
        "Whether a producer's requests are refused once it has sent later ones by a newer connection: a delayed "
        "request then never ends another transaction than its own.",
    )


# Limits on what waits
# --------------------


class WaitingSettings(SettingsModel):
    max_parked_requests: PositiveInt32 = setting(
        20_000, "How many JoinGroup and SyncGroup requests may wait for their group at a time."
    )
    queued_max_requests: PositiveInt32 = setting(
        20_000, "How many requests may wait for the coordinator's next turn before further ones are refused."
    )
    max_watchers: NonNegativeInt32 = setting(1_000, "How many WatchGroup streams may be open at a time.")
    max_sessions: NonNegativeInt32 = setting(
        20_000, "How many members may be on a Session stream, shared or their own, at a time; further ones poll."
    )
    group_reconnect_grace_ms: NonNegativeInt32 = setting(
        MAX_INT,
        "How long the coordinator waits for a member whose Session stream broke, unless its session ends first.",
    )
