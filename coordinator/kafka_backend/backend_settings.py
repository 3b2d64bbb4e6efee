"""Translates a node's settings into the values that this backend works with."""

from dataclasses import replace
from typing import Final

from muster.coordinator.config import Settings
from muster.coordinator.config.kafka_proxy import mechanism_of
from muster.coordinator.kafka_backend.shard_ownership import lease
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.state_topic import StateTopicSpec
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamCredentials, UpstreamTlsFiles

ANSWER_S: Final = 10.0
"""A broker that is silent for so long is asked no more, and another that may lead by now is: by default a Kafka takes
9 s to find out itself."""


def upstream_address_of(settings: Settings) -> UpstreamAddress:
    """How the upstream is reached. Files are read when a connection is made."""
    protocol, mechanism = settings.engine_kafka_security_protocol, settings.engine_kafka_sasl_mechanism
    login = UpstreamCredentials(
        mechanism,
        settings.engine_kafka_sasl_username,
        settings.engine_kafka_sasl_password.get_secret_value(),
        settings.engine_kafka_sasl_oauthbearer_token_file,
    )
    certificates = UpstreamTlsFiles(
        settings.engine_kafka_ssl_truststore_location,
        settings.engine_kafka_ssl_keystore_location,
        settings.engine_kafka_ssl_key_password.get_secret_value(),
    )
    return UpstreamAddress(
        settings.upstream,
        login if mechanism else None,
        certificates if protocol.endswith("SSL") else None,
        client_id=f"{settings.engine_kafka_cluster}-{settings.node_id}",
        answer_s=ANSWER_S,
        reads_only=settings.watch_enable,
    )


def proxy_address_of(settings: Settings) -> UpstreamAddress | None:
    """How it is reached for clients that have shown a certificate, as whom their connections are let in there; None:
    they show the brokers who they are. Where brokers go by a login, TLS below it is the node's own."""
    if not settings.engine_kafka_proxy_principal:
        return None
    reach, of = upstream_address_of(settings), "engine.kafka.proxy."
    if reach.login is None:
        certificates = UpstreamTlsFiles(
            settings.engine_kafka_ssl_truststore_location,
            settings.engine_kafka_proxy_ssl_keystore_location,
            settings.engine_kafka_proxy_ssl_key_password.get_secret_value(),
            of,
        )
        return replace(reach, certificates=certificates)
    login = UpstreamCredentials(
        mechanism_of(settings),
        settings.engine_kafka_proxy_sasl_username,
        settings.engine_kafka_proxy_sasl_password.get_secret_value(),
        settings.engine_kafka_proxy_sasl_oauthbearer_token_file,
        of,
    )
    return replace(reach, login=login)


def state_topic_spec_of(settings: Settings) -> StateTopicSpec:
    return StateTopicSpec(
        settings.state_topic,
        settings.offsets_topic_num_partitions,
        settings.engine_kafka_state_replication_factor,
        settings.engine_kafka_node_id_base,
        settings.engine_kafka_cluster,
    )


def ownership_settings_of(
    settings: Settings, instance: str, batch_bytes: int, wall_ms: int, *, address: str = "", kafka: str = ""
) -> lease.OwnershipSettings:
    """What the rules of ownership go by. instance: of this process. batch_bytes: what `usable` found. wall_ms: what the
    wall's clock shows at moment 0 of the node's. address, kafka: HOST:PORT of its doors, for clients."""
    limits = AppendLimits(
        batch_bytes=batch_bytes,
        unacked_bytes=settings.engine_kafka_max_unacked_bytes_per_shard,
        delivery_timeout_ms=settings.engine_kafka_delivery_timeout_ms,
    )
    return lease.OwnershipSettings(
        settings.node_id,
        instance,
        address,
        kafka,
        session_timeout_ms=settings.engine_kafka_session_timeout_ms,
        owner_refresh_ms=settings.engine_kafka_owner_refresh_ms,
        wall_ms=wall_ms,
        limits=limits,
    )
