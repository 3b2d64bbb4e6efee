"""Who may do what on a node: made, and imported, only where a setting asks for it."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypedDict

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.config.security.tls import REPLICATION
from muster.coordinator.core.requests.streams import HeldBack
from muster.coordinator.edge.audit import Tell
from muster.coordinator.edge.gate import AsksWho
from muster.coordinator.edge.rights import RightsOf, everything
from muster.coordinator.edge.transport.tls import Tls
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.dispatch import Method, methods_of
from muster.coordinator.server.driver.drive import Driver
from muster.coordinator.server.journal.lines import audited, tell_action
from muster.coordinator.server.node.services import ACL_SERVICE, QUOTA_SERVICE
from muster.coordinator.server.part import Stages
from muster.storage.broker.broker import Broker

if TYPE_CHECKING:
    import grpc

    from muster.coordinator.security.identity import Identity
    from muster.coordinator.server.clustered.joined import Joined
    from muster.coordinator.server.security.rights.asking import Rights
    from muster.coordinator.server.security.security import Security
    from muster.coordinator.server.security.store import SecurityStore
    from muster.coordinator.server.security.tls.listeners import Certificates


log = structlog.get_logger("muster.security")


async def certificates_of(settings: Settings) -> "Certificates | None":
    """None where no listener speaks TLS. Raises BadCertificate."""
    if not any(door.encrypted for door in settings.doors.values()):
        return None
    from muster.coordinator.server.security.tls.listeners import Certificates

    return await asyncio.to_thread(Certificates, settings)


def credentials_for_grpc(certificates: "Certificates | None") -> "grpc.ServerCredentials | None":
    """None where gRPC is spoken in the clear."""
    if certificates is None or (own := certificates.of("grpc")) is None:
        return None
    from muster.coordinator.server.grpc.credentials import credentials_of

    return credentials_of(lambda: own.material, asks=own.given.ssl_client_auth == "required")


class SecurityGauges(TypedDict):
    """What is read at the moment of an answer."""

    expiries: Callable[[], Mapping[str, float]]
    throttled: Callable[[], Mapping[str, float]]
    failed_logins: Callable[[], Mapping[tuple[str, str], float]]


def gauges_of(certificates: "Certificates | None", security: "Security | None") -> SecurityGauges:
    """When certificates end, by listener; how long principals were told to wait; who failed to log in, by address."""
    return {
        "expiries": dict if certificates is None else certificates.expiries,
        "throttled": dict if security is None else lambda: security.quotas.throttled_s,
        "failed_logins": dict if security is None else lambda: security.failures.by_address,
    }


def tls_of(certificates: "Certificates | None", door: str) -> Tls | None:
    own = None if certificates is None else certificates.of(door)
    return None if own is None else own.tls()


async def security_of(
    settings: Settings,
    broker: Broker,
    certificates: "Certificates | None",
    store: "SecurityStore | None" = None,
) -> "Security | None":
    """None where nobody is asked who they are. Of one node of many it knows nothing before `shared`. store: where it is
    kept by others; whoever has it tells when it is known. Raises SecurityDamaged, StorageError."""
    if settings.authorizer == "none":
        return None
    from muster.coordinator.server.security.security import Security

    if store is not None:
        return Security(settings, broker, certificates, store)

    if settings.inter_broker_listeners:
        from muster.coordinator.server.clustered.shared_store import SharedStore

        store = SharedStore(broker)
        await asyncio.to_thread(store.load)
        security = Security(settings, broker, certificates, store)
        tell_own_name(security, certificates)
        return security
    security = Security(settings, broker, certificates)
    await asyncio.to_thread(security.load)
    await security.start()
    return security


def tell_own_name(security: "Security", certificates: "Certificates | None") -> None:
    """What other nodes need to let this one in: it is looked for in vain otherwise."""
    own = None if certificates is None else certificates.of(REPLICATION)
    if own is None:
        return
    from muster.coordinator.security.identity import Identity

    principal = own.names.principal_of(own.material.chain)
    if not security.authorizer.is_super(Identity(principal, "")):
        log.warning(
            "other nodes let this one in only if a list gives it the right: it is none of super.users",
            principal=str(principal),
            needs="CLUSTER_ACTION on CLUSTER",
        )


async def shared(security: "Security | None", joined: "Joined", disk: Broker) -> None:
    """Have from the cluster, which this node has joined, who may do what; nobody may be answered before. Raises
    SecurityDamaged, StorageError."""
    from muster.coordinator.server.clustered.sharing import share

    await share(security, joined, disk)


def node_rights(security: "Security | None") -> "Callable[[Identity], bool] | None":
    """Who may ask what nodes ask each other; None: whoever can."""
    return None if security is None else security.may_act_as_node


async def stop(security: "Security | None") -> None:
    if security is not None:
        await security.stop()


def services_of(settings: Settings) -> tuple[str, ...]:
    """What is served beside the rest, for health and reflection."""
    return () if settings.authorizer == "none" else (ACL_SERVICE.full_name, QUOTA_SERVICE.full_name)


def teller(security: "Security | None") -> Tell:
    """Who is told what operators do: the audit, where there is one."""
    return tell_action if security is None else security.audit.action


def gate_of(security: "Security | None") -> AsksWho | None:
    return None if security is None else security.gate


def gates_of(settings: Settings, gate: AsksWho | None) -> dict[str, AsksWho | None]:
    """Who is asked before health and reflection are answered by gRPC."""
    return {
        "health_gate": None if settings.http_probes_anonymous else gate,
        "reflection_gate": None if settings.grpc_reflection_anonymous else gate,
    }


def guarded_by(
    security: "Security | None",
    table: dict[str, Method],
    staging: Stages,
    topics: Callable[[], Mapping[str, int]],
    engine: Engine,
    driver: Driver,
) -> dict[str, Method]:
    """The table of calls, asked for rights where anybody is. Raises LookupError for a call without a row there."""
    if security is None:
        return table
    from muster.coordinator.server.security.acl_service import AclService
    from muster.coordinator.server.security.paying import Paying
    from muster.coordinator.server.security.rights.guarding import guarded
    from muster.coordinator.server.service.accounts import SECURITY_SERVICE, SecurityService
    from muster.coordinator.server.service.quotas import Quotas as QuotaService

    lists = AclService(security.acls, security.authorizer, allow_if_no_acl_found=security.allow_if_no_acl_found)
    table |= audited(methods_of(ACL_SERVICE, lists), security.audit.action)
    security.rights.topics, security.topic_rights.tell = topics, driver.tell_all
    security.counts.alive = partial(alive, engine)
    table |= methods_of(SECURITY_SERVICE, SecurityService(security.accounts, security.audit))
    table |= audited(methods_of(QUOTA_SERVICE, QuotaService(security.quota_book)), security.audit.action)

    def waits(group_id: str, member_id: str, for_ms: int) -> None:
        driver.tell(partition_for(group_id, engine.shards), HeldBack(group_id, member_id, for_ms))

    paying = Paying(security.quotas, security.counts, waits, topics, security.topic_owners)
    return paying.charged(guarded(table, security.rights, staging.topics_of))


def alive(engine: Engine, group_id: str, member_id: str) -> bool:
    """Whether a group has this member at the moment."""
    core = engine.core(partition_for(group_id, engine.shards))
    return core is not None and core.knows(group_id, member_id)


def rights_of(security: "Security | None") -> RightsOf:
    """What members may read."""
    return everything if security is None else security.topic_rights


def sees_of(security: "Security | None") -> "Rights | None":
    """Who may know of what, for pages and metrics."""
    return None if security is None else security.rights
