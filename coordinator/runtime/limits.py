"""Maps the node's settings to the limits that the rules need. The core never sees the settings themselves."""

from muster.assignors.registry import BUILT_IN, known
from muster.coordinator.config import Settings
from muster.coordinator.config.values import assignor_words_by_name
from muster.coordinator.core.model.types import Limits


def limits_of(settings: Settings) -> Limits:
    consumer, remote = (
        assignor_words_by_name(settings.consumer_assignors),
        assignor_words_by_name(settings.remote_assignors),
    )
    return Limits(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_group_size=settings.group_max_size,
        # A static member that comes back may bring as much again.
        max_group_bytes=settings.offsets_topic_segment_bytes // 4,
        max_offset_metadata=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offsets_retention_check_ms=settings.offsets_retention_check_interval_ms,
        remote_assignors=tuple(remote),
        installed=tuple(name for name in known() if name not in BUILT_IN),
        ledger_max_entries=settings.group_ledger_max_entries,
        ledger_max_bytes=settings.group_ledger_max_bytes,
        ledger_max_snapshot_bytes=settings.group_ledger_max_snapshot_bytes,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_min_session_timeout_ms=settings.group_consumer_min_session_timeout_ms,
        consumer_max_session_timeout_ms=settings.group_consumer_max_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_min_heartbeat_interval_ms=settings.group_consumer_min_heartbeat_interval_ms,
        consumer_max_heartbeat_interval_ms=settings.group_consumer_max_heartbeat_interval_ms,
        consumer_max_group_size=settings.group_consumer_max_size,
        consumer_assignors=tuple(consumer),
        plugins=tuple((name, word) for name, word in {**consumer, **remote}.items() if name not in BUILT_IN),
        consumer_migration_policy=settings.group_consumer_migration_policy,
        consumer_assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
        consumer_min_assignment_interval_ms=settings.group_consumer_min_assignment_interval_ms,
        consumer_max_assignment_interval_ms=settings.group_consumer_max_assignment_interval_ms,
        consumer_regex_refresh_ms=settings.group_consumer_regex_refresh_interval_ms,
        central_max_retries=settings.group_central_rebalance_max_retries,
        central_backoff_ms=settings.group_central_rebalance_backoff_ms,
        central_newcomers_delay_ms=settings.group_central_newcomers_delay_ms,
        central_max_timed_out=settings.group_central_max_timed_out_heartbeats,
    )
