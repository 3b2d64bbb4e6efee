"""What a cluster goes by, made of a node's settings."""

from collections.abc import Mapping

from muster.coordinator.config import Settings
from muster.coordinator.replication.protocol.controller import settings as rules
from muster.coordinator.replication.protocol.facts import ELECTIONS, LEDGER, OFFSETS, SECURITY

ELECTIONS_RETENTION_MS = 30 * 24 * 60 * 60 * 1000


def controller_settings_of(settings: Settings) -> rules.ControllerSettings:
    """What the controller goes by."""
    return rules.ControllerSettings(
        min_isr=settings.min_insync_replicas,
        unclean_election=settings.unclean_leader_election_enable,
        loose=settings.for_topic({}).flush_messages != 1,
        offsets_partitions=settings.offsets_topic_num_partitions,
        offsets_replicas=settings.offsets_topic_replication_factor,
        internal=(ELECTIONS,) if settings.authorizer == "none" else (ELECTIONS, SECURITY),
        eviction=settings.broker_eviction_on_refusal,
        auto_rebalance=settings.auto_leader_rebalance_enable,
        imbalance_percent=settings.leader_imbalance_per_broker_percentage,
        imbalance_check_ms=settings.leader_imbalance_check_interval_seconds * 1000,
    )


def internal_configs(settings: Settings, name: str) -> Mapping[str, str]:
    """What an internal topic sets for itself."""
    if name == SECURITY:
        from muster.coordinator.server.security.security_store import CONFIGS

        # A copy that may lack what was taken from somebody is elected by an operator's word only.
        return {**CONFIGS, "flush.messages": "1", "unclean.leader.election.enable": "false"}
    if name in (OFFSETS, LEDGER):
        size = str(settings.offsets_topic_segment_bytes)
        # A turn's batch is as large as it is; only a segment bounds it.
        return {"cleanup.policy": "compact", "segment.bytes": size, "max.message.bytes": size}
    return {"retention.ms": str(ELECTIONS_RETENTION_MS)} if name == ELECTIONS else {}
