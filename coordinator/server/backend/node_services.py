"""The gRPC services of a node: the one table of their calls, and the security that guards it.

Security and TLS are made, and imported, only where a setting asks for them.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypedDict

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.config.tls import REPLICATION
from muster.coordinator.core.model.events import HeldBack
from muster.coordinator.edge.listener_base import (
    UNRESTRICTED,
    Authenticator,
    ListenerTls,
    ReportAction,
    TopicRightsSource,
)
from muster.coordinator.rpc.v1 import (
    acl_service_pb2,
    control_service_pb2,
    coordinator_service_pb2,
    fence_service_pb2,
    quota_service_pb2,
)
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.node_events import log_action, report_operator_calls
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.coordinator.server.services.group_control import GroupControl
from muster.coordinator.server.services.group_coordinator import GroupCoordinator
from muster.coordinator.server.transactions.transaction_rpcs import TRANSACTION_SERVICE
from muster.storage.broker.broker import Broker
from muster.storage.rpc.v1 import broker_service_pb2, staging_service_pb2
from muster.storage.rpc.v1 import staging_service_pb2 as pb
from muster.storage.service.broker_service import BrokerService
from muster.storage.types import Topic

if TYPE_CHECKING:
    import grpc

    from muster.coordinator.observability.history.group_history import GroupHistory
    from muster.coordinator.security.access_model import Identity
    from muster.coordinator.server.security.call_rights import CallRights
    from muster.coordinator.server.security.listener_certificates import NodeCertificates
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore


# Ports
# -----


class StagingHandlers(Protocol):
    """The Staging service, or its refusal."""

    async def topics_of(self, request: pb.CommitStagedRequest | pb.AbortStagedRequest) -> set[str]: ...

    async def keep_up(self) -> None: ...

    async def close(self) -> None: ...


class Stoppable(Protocol):
    """What is done by the clock."""

    def stop(self) -> None: ...


# The table of calls
# ------------------

GROUP_SERVICE = coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]
CONTROL_SERVICE = control_service_pb2.DESCRIPTOR.services_by_name["GroupControl"]
ACL_SERVICE = acl_service_pb2.DESCRIPTOR.services_by_name["Acls"]
QUOTA_SERVICE = quota_service_pb2.DESCRIPTOR.services_by_name["Quotas"]
FENCE_SERVICE = fence_service_pb2.DESCRIPTOR.services_by_name["Fencing"]
BROKER_SERVICE = broker_service_pb2.DESCRIPTOR.services_by_name["Broker"]
STAGING_SERVICE = staging_service_pb2.DESCRIPTOR.services_by_name["Staging"]

WHOLE_NODE = ""
"""The name under which the health service reports the whole node."""

SERVICES = (GROUP_SERVICE, CONTROL_SERVICE, FENCE_SERVICE, TRANSACTION_SERVICE, BROKER_SERVICE, STAGING_SERVICE)
HEALTH_NAMES = (WHOLE_NODE, *(service.full_name for service in SERVICES))
"""What the health service knows."""


def make_method_table(
    groups: GroupCoordinator, control: GroupControl, records: BrokerService, staging: StagingHandlers
) -> dict[str, ServiceMethod]:
    """Every call by its full name. Raises LookupError when one has no handler."""
    return (
        methods_of(GROUP_SERVICE, groups)
        | methods_of(CONTROL_SERVICE, control)
        | methods_of(BROKER_SERVICE, records)
        | methods_of(STAGING_SERVICE, staging)
    )


# Security of a node
# ------------------

log = structlog.get_logger("muster.security")


async def load_certificates(settings: Settings) -> "NodeCertificates | None":
    """None where no listener speaks TLS. Raises BadCertificate."""
    if not any(door.encrypted for door in settings.listener_addresses.values()):
        return None
    from muster.coordinator.server.security.listener_certificates import NodeCertificates

    return await asyncio.to_thread(NodeCertificates, settings)


def make_grpc_credentials(certificates: "NodeCertificates | None") -> "grpc.ServerCredentials | None":
    """None where gRPC is spoken in the clear."""
    if certificates is None or (own := certificates.of("grpc")) is None:
        return None
    from muster.coordinator.server.grpc.listener import make_server_credentials

    return make_server_credentials(lambda: own.material, asks=own.given.ssl_client_auth == "required")


class SecurityGauges(TypedDict):
    """What is read at the moment of an answer."""

    expiries: Callable[[], Mapping[str, float]]
    throttled: Callable[[], Mapping[str, float]]
    failed_logins: Callable[[], Mapping[tuple[str, str], float]]


def security_gauges(certificates: "NodeCertificates | None", security: "NodeSecurity | None") -> SecurityGauges:
    """When certificates end, by listener; how long principals were told to wait; who failed to log in, by address."""
    return {
        "expiries": dict if certificates is None else certificates.expiries,
        "throttled": dict if security is None else lambda: security.quotas.throttled_s,
        "failed_logins": dict if security is None else lambda: security.failures.by_address,
    }


def listener_tls(certificates: "NodeCertificates | None", door: str) -> ListenerTls | None:
    own = None if certificates is None else certificates.of(door)
    return None if own is None else own.tls()


async def make_security(
    settings: Settings,
    topics: Callable[[], Mapping[str, Topic]],
    disk: Broker | None,
    certificates: "NodeCertificates | None",
    store: "SecurityStore | None" = None,
) -> "NodeSecurity | None":
    """None where nobody is asked who they are. Of one node of many it knows nothing before `join`. store:
    where it is kept with others; whoever has it tells when it is known. Raises SecurityDamaged, StorageError."""
    if settings.authorizer == "none":
        return None
    from muster.coordinator.server.security.node_security import NodeSecurity

    if store is not None:
        return NodeSecurity(settings, topics, store, certificates)
    assert disk is not None, "whoever has no data directory has another store"
    from muster.coordinator.server.security.security_store import SecurityStore

    security = NodeSecurity(settings, topics, SecurityStore(disk), certificates, alone=True)
    await asyncio.to_thread(security.load)
    await security.start()
    return security


def warn_of_own_rights(security: "NodeSecurity", certificates: "NodeCertificates | None") -> None:
    """What other nodes need to let this one in: it is looked for in vain otherwise."""
    own = None if certificates is None else certificates.of(REPLICATION)
    if own is None:
        return
    from muster.coordinator.security.access_model import Identity

    principal = own.names.principal_of(own.material.chain)
    if not security.authorizer.is_super(Identity(principal, "")):
        log.warning(
            "other nodes accept this node only if an access control list allows it: it is not in super.users",
            principal=str(principal),
            needs="CLUSTER_ACTION on CLUSTER",
        )


def node_rights_check(security: "NodeSecurity | None") -> "Callable[[Identity], bool] | None":
    """Who may ask what nodes ask each other; None: whoever can."""
    return None if security is None else security.may_act_as_node


async def stop_security(security: "NodeSecurity | None") -> None:
    if security is not None:
        await security.stop()


def security_service_names(settings: Settings) -> tuple[str, ...]:
    """What is served beside the rest, for health and reflection."""
    return () if settings.authorizer == "none" else (ACL_SERVICE.full_name, QUOTA_SERVICE.full_name)


def action_reporter(security: "NodeSecurity | None") -> ReportAction:
    """Who is told what operators do: the audit, where there is one."""
    return log_action if security is None else security.audit.action


def authenticator_of(security: "NodeSecurity | None") -> Authenticator | None:
    return None if security is None else security.gate


def probe_authenticators(settings: Settings, gate: Authenticator | None) -> dict[str, Authenticator | None]:
    """Who is asked before health and reflection are answered by gRPC."""
    return {
        "health_gate": None if settings.http_probes_anonymous else gate,
        "reflection_gate": None if settings.grpc_reflection_anonymous else gate,
    }


def guard_methods(
    security: "NodeSecurity | None",
    table: dict[str, ServiceMethod],
    staging: StagingHandlers,
    topics: Callable[[], Mapping[str, int]],
    engine: Engine,
    driver: EngineDriver,
    history: "GroupHistory | None",
) -> dict[str, ServiceMethod]:
    """The table of calls, asked for rights where anybody is. Raises LookupError for a call without a row there."""
    if security is None:
        return table
    from muster.coordinator.server.security.accounts import SECURITY_SERVICE, SecurityService
    from muster.coordinator.server.security.acl_service import AclService
    from muster.coordinator.server.security.call_guard import guard_table
    from muster.coordinator.server.security.grpc_quotas import GrpcQuotas, QuotaService

    lists = AclService(security.acls, security.authorizer, allow_if_no_acl_found=security.allow_if_no_acl_found)
    table |= report_operator_calls(methods_of(ACL_SERVICE, lists), security.audit.action)
    security.rights.topics, security.topic_rights.tell = topics, driver.tell_all
    if history is not None:
        security.rights.topics_of_group = history.topics_of
    security.counts.alive = partial(member_exists, engine)
    table |= methods_of(SECURITY_SERVICE, SecurityService(security.accounts, security.audit))
    table |= report_operator_calls(
        methods_of(QUOTA_SERVICE, QuotaService(security.configured_quotas)), security.audit.action
    )

    def waits(group_id: str, member_id: str, for_ms: int) -> None:
        driver.submit_event(partition_for(group_id, engine.shards), HeldBack(group_id, member_id, for_ms))

    paying = GrpcQuotas(security.quotas, security.counts, waits, topics, security.topic_owners)
    return paying.charged(guard_table(table, security.rights, staging.topics_of))


def member_exists(engine: Engine, group_id: str, member_id: str) -> bool:
    """Whether a group has this member at the moment; without a member's id, whether there is such a group."""
    core = engine.core(partition_for(group_id, engine.shards))
    return core is not None and core.knows(group_id, member_id or None)


def topic_rights_of(security: "NodeSecurity | None") -> TopicRightsSource:
    """What members may read."""
    return UNRESTRICTED if security is None else security.topic_rights


def visibility_of(security: "NodeSecurity | None") -> "CallRights | None":
    """Who may know of what, for pages and metrics."""
    return None if security is None else security.rights
