"""All settings of a node as one frozen model, with the checks that span several topics.

`Settings` inherits one model per topic; the order of its bases is the order of the rendered properties file. The
settings of the log are inherited from the log itself, so that a `Settings` can be handed to the broker as it is.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator
from pydantic.fields import FieldInfo

from muster.coordinator.config.cluster import ClusterSettings, ZooKeeperConnectionSettings
from muster.coordinator.config.groups import (
    CentralGroupSettings,
    ConsumerGroupSettings,
    GroupCoordinationSettings,
    OffsetsSettings,
    TransactionSettings,
    WaitingSettings,
)
from muster.coordinator.config.kafka_backend import KafkaBackendSettings, check_backend_settings, check_node_id
from muster.coordinator.config.kafka_proxy import check_proxy_logins
from muster.coordinator.config.listener_security import check_authority, check_listeners
from muster.coordinator.config.listeners import GrpcSettings, HttpSettings, KafkaSettings
from muster.coordinator.config.node import MetricsSettings, NodeSettings, ObservationSettings, TracingSettings
from muster.coordinator.config.security import (
    AuditSettings,
    AuthenticationSettings,
    AuthorizationSettings,
    QuotaSettings,
)
from muster.coordinator.config.tls import LISTENER_NAME, REPLICATION, TlsSettings
from muster.coordinator.config.values import ListenerAddress, assignor_words_by_name
from muster.storage.config import LogSettings
from muster.storage.settings_text import shown_setting

MESSAGE_ENVELOPE_BYTES = 64 << 10
"""What a message needs beside the record batches it carries."""


WAITS_IN_A_SESSION = 2


class Settings(
    NodeSettings,
    GrpcSettings,
    KafkaSettings,
    HttpSettings,
    MetricsSettings,
    TracingSettings,
    TlsSettings,
    AuthorizationSettings,
    AuditSettings,
    AuthenticationSettings,
    QuotaSettings,
    WaitingSettings,
    GroupCoordinationSettings,
    ConsumerGroupSettings,
    CentralGroupSettings,
    OffsetsSettings,
    TransactionSettings,
    ZooKeeperConnectionSettings,
    ClusterSettings,
    ObservationSettings,
    KafkaBackendSettings,
    LogSettings,
):
    """All settings of one node, checked as a whole. Build it with `load_settings`.

    What concerns the log is inherited from the log itself, so this can be handed to the broker as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    _references: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def references(self) -> Mapping[str, str]:
        """Settings whose values were read elsewhere (`${env:NAME}` and the like), as they were written."""
        return self._references

    def shown(self, alias: str, name: str) -> str:
        """A setting's value for anybody to see."""
        return shown_setting(self, alias, name) or ""

    def of_every_topic(self) -> Mapping[str, object]:
        """Of copies, where there are any: on a node alone there is one."""
        if not self.inter_broker_listeners:
            return {}
        return {
            "min.insync.replicas": self.min_insync_replicas,
            "unclean.leader.election.enable": self.unclean_leader_election_enable,
        }

    @property
    def directory(self) -> Path | None:
        """Where this node keeps what it keeps; None where a Kafka keeps its state."""
        if self.watch_enable:
            return Path(self.watch_ledger_dir) if self.watch_ledger_dir else None
        return None if self.upstream else self.data_dir

    @property
    def observes(self) -> bool:
        """Whether there is anybody for whom the node would look at its groups."""
        return self.scaler_enable or self.http_address is not None

    @property
    def listener_addresses(self) -> dict[str, ListenerAddress]:
        """What each door that is served speaks, and where: `grpc`, `kafka`, `http`, `replication`."""
        found = {
            "grpc": self.grpc_listener,
            "kafka": self.kafka_listener,
            "http": self.http_listener,
            REPLICATION: self.replication_listener,
        }
        return {name: door for name, door in found.items() if door is not None}

    @model_validator(mode="after")
    def check_assignor_names_are_unique(self) -> Self:
        assignor_words_by_name((*self.consumer_assignors, *self.remote_assignors))
        return self

    @model_validator(mode="after")
    def check_message_sizes(self) -> Self:
        for name, size in (("message.max.bytes", self.message_max_bytes), ("fetch.max.bytes", self.fetch_max_bytes)):
            if size + MESSAGE_ENVELOPE_BYTES > self.grpc_max_message_bytes:
                raise ValueError(
                    f"{name} is {size}, but grpc.max.message.bytes, which is {self.grpc_max_message_bytes}, has room "
                    f"for {self.grpc_max_message_bytes - MESSAGE_ENVELOPE_BYTES}; lower the first or raise the second"
                )
        largest = self.message_max_bytes + MESSAGE_ENVELOPE_BYTES
        if self.kafka_listeners and largest > self.socket_request_max_bytes:
            raise ValueError(
                f"message.max.bytes is {self.message_max_bytes}, but socket.request.max.bytes, which is "
                f"{self.socket_request_max_bytes}, has no room for it; lower the first or raise the second"
            )
        return self

    @model_validator(mode="after")
    def check_cluster_has_zookeeper(self) -> Self:
        if self.inter_broker_listeners and not self.zookeeper_connect and not self.upstream:
            raise ValueError(
                f"inter.broker.listeners is {self.inter_broker_listeners}, but zookeeper.connect is empty: nodes of a "
                "cluster find each other, and elect leaders, through ZooKeeper; set zookeeper.connect to "
                "HOST:PORT,HOST:PORT/CHROOT, or leave inter.broker.listeners empty"
            )
        # A coordinator answers as long as each copy in sync has proven within a session that it heard from it, which it
        # does with its next fetch.
        longest = self.zookeeper_session_timeout_ms // WAITS_IN_A_SESSION
        if self.inter_broker_listeners and self.replica_fetch_wait_max_ms > longest:
            raise ValueError(
                f"replica.fetch.wait.max.ms is {self.replica_fetch_wait_max_ms}, but zookeeper.session.timeout.ms is "
                f"{self.zookeeper_session_timeout_ms}: while replicas wait for records, their groups would get no "
                f"answers; expected at most {longest}, or a longer session"
            )
        return self

    @model_validator(mode="after")
    def check_single_backend(self) -> Self:
        others = {
            "zookeeper.connect": self.zookeeper_connect,
            "inter.broker.listeners": self.inter_broker_listeners,
        }
        check_backend_settings(self, given=self.model_fields_set, log_dirs=self.data_dir, others=others)
        check_node_id(self, self.node_id)
        if self.watch_enable and bool(self.upstream) == bool(self.watch_segments):
            raise ValueError(
                f"watch.enable is true, engine is {self.engine}, watch.segments is {self.watch_segments!r}; expected "
                "either engine=kafka://HOST:PORT or watch.segments, to say what is watched"
            )
        if self.watch_enable and self.kafka_listeners:
            raise ValueError(
                f"kafka.listeners is {self.kafka_listeners}, but watch.enable is true: a watching node serves no "
                "Kafka clients, they have the Kafka that is watched; leave kafka.listeners out"
            )
        if self.upstream and not self.watch_enable:
            self.check_brokers_can_be_reached(self.kafka_listener)
        return self

    @model_validator(mode="after")
    def check_listener_security(self) -> Self:
        check_listeners(self.listener_addresses, self, open_by_name={"http"} if self.http_insecure else ())
        check_authority(
            self.listener_addresses,
            self,
            authorizer=self.authorizer,
            mechanisms=self.sasl_enabled_mechanisms,
            zookeeper=self.zookeeper_connect,
        )
        if self.kafka_listener is not None:
            self.check_plain(self.kafka_listener)
            if self.upstream:
                check_proxy_logins(self, self.kafka_listener, self.certificates_of("kafka").ssl_client_auth)
        return self


def known_settings() -> dict[str, FieldInfo]:
    """Dotted name -> field, room after room; the log's come last. What has its names from others is left out."""
    return {
        field.alias or name: field
        for room in setting_models()
        for name, field in room.model_fields.items()
        if field.alias != LISTENER_NAME.rstrip(".")
    }


def setting_models() -> Iterator[type[BaseModel]]:
    return (room for room in Settings.__bases__ if issubclass(room, BaseModel))
