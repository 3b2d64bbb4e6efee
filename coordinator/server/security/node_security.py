"""Composes a node's security: lists, authorizer, authentication, quotas and audit. Imported only with `authorizer=acl`.

A change of any of them is in force as soon as it is durable.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.config.security import principals_of
from muster.coordinator.config.tls import REPLICATION
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.security.access_model import CLUSTER_NAME, Identity, Operation, ResourceType, parse_principal
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.quota_usage import NodeQuotas, UserCounts
from muster.coordinator.security.state import AclKey, QuotaKey, SecretKey, SecurityRecord
from muster.coordinator.server.driver.clock import WallClock
from muster.coordinator.server.security.accounts import UserAccounts
from muster.coordinator.server.security.acl_service import NodeAcls, PrincipalTopicRights
from muster.coordinator.server.security.audit_log import AuditTrail, LoginFailures
from muster.coordinator.server.security.authentication import (
    CallerAuthenticator,
    KafkaLogins,
    NodeScramUsers,
    SigningKeyRing,
)
from muster.coordinator.server.security.call_rights import CallRights
from muster.coordinator.server.security.grpc_quotas import ConfiguredQuotas, TopicOwners
from muster.coordinator.server.security.listener_certificates import NodeCertificates
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.errors import StorageError
from muster.storage.types import Topic

SALTS: Final = "salts"
"""Of this the salts are made that names get which nobody has."""

SALT_BYTES: Final = 32
SOON_S: Final = 1.0

log = structlog.get_logger("muster.security")


class NodeSecurity:
    """The lists, who decides by them, and who knows who calls. A change is in force as soon as it is durable."""

    def __init__(
        self,
        settings: Settings,
        topics: Callable[[], Mapping[str, Topic]],
        store: SecurityStore,
        certificates: NodeCertificates | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """topics: those there are. alone: the store is this node's, and shared with no other."""
        self._alone = alone
        self.store = store
        self.authorizer = AclAuthorizer(
            map(parse_principal, principals_of(settings.super_users)),
            allow_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
        )
        self.trail = AuditTrail(settings.audit_log)
        self.audit = self.trail.audit
        self.failures = LoginFailures(self.audit)
        self.keys = SigningKeyRing(settings) if settings.oauthbearer_jwks_url else None
        verify = self.keys.verify if self.keys is not None else None
        self.gate = CallerAuthenticator(
            self.store.state,
            verify=verify,
            failed=self.failures.count_failure,
            principal_of=None if certificates is None else certificates.principal_of,
        )
        if self.keys is not None:
            self.keys.changed = self.gate.keys_changed
        self.logins = KafkaLogins(settings, self.store.state, self._secret, self.keys, self.failures.count_failure)
        self.rights = CallRights(self.authorizer, self.audit)
        self.rights.believed = self.gate.believed
        self.allow_if_no_acl_found = settings.allow_everyone_if_no_acl_found
        self.topic_rights = PrincipalTopicRights(
            self.authorizer.is_super, allow_if_no_acl_found=settings.allow_everyone_if_no_acl_found
        )
        self.acls = NodeAcls(self.store)
        self.store.on_changes(self._changed)
        self.quotas = NodeQuotas(settings.quota_window_num, settings.quota_window_size_seconds)
        self.configured_quotas = ConfiguredQuotas(self.store)
        self.counts = UserCounts(self.quotas)
        self.topics = topics
        """Those there are; of a cluster, once it is known."""
        self.topic_owners = TopicOwners(self.store, self.quotas, lambda: self.topics())
        self.store.on_change(self.gate.changed)
        self.store.on_change(self.logins.changed)
        self.accounts = UserAccounts(self.store)
        self._turning = RestartedTask("clock of credentials", WallClock(self._clock_moved).turn)
        self._salting = RestartedTask("salts for unknown users", self._make_salts_later, returns=True)
        self._own_salts = secrets.token_bytes(SALT_BYTES)
        self.scram_users = NodeScramUsers(self.accounts, self.audit)

    def load(self) -> None:
        """Read what the log has, before anybody is answered. Blocks. Raises SecurityDamaged, StorageError."""
        self.store.load()
        self.quotas.replace(self.store.state.quotas)
        self.authorizer.replace(self.store.state.acls)
        self.topic_rights.replace(self.store.state.acls)

    def may_act_as_node(self, who: Identity) -> bool:
        """Whether somebody is one of the nodes of this cluster: super users are, before anything is read, and whoever
        has the right."""
        right = Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        if self.authorizer.allows(who, *right):
            return True
        self.audit.refused(who, REPLICATION, *right, "")
        return False

    async def start(self) -> None:
        """Raises StorageError."""
        await self.trail.start()
        if self.keys is not None:
            await self.keys.start()
        self._turning.start()
        if not self.store.keeps_users:
            return
        if self._alone:
            await self._make_salts()
        else:
            self._salting.start()

    async def _make_salts_later(self) -> None:
        """Those of a cluster; who leads it may be away."""
        await self.store.known()
        while SALTS not in self.store.state.secrets:
            try:
                await self.store.settled(self._make_salts)
            except StorageError as error:
                log.info("salts for unknown users are this node's own for now", why=str(error))
                await asyncio.sleep(SOON_S)

    async def _make_salts(self) -> None:
        if SALTS not in self.store.state.secrets:
            await self.store.write([SecurityRecord(SecretKey(SALTS), secrets.token_bytes(SALT_BYTES))])

    async def stop(self) -> None:
        await self._turning.stop()
        await self._salting.stop()
        if self.keys is not None:
            self.keys.close()
        self.logins.close()
        await self.trail.stop()

    def _clock_moved(self, by_s: float) -> None:
        self.gate.clock_moved(by_s)
        self.logins.clock_moved(by_s)

    def _secret(self) -> bytes:
        return self.store.state.secrets.get(SALTS, self._own_salts)

    def _changed(self, changes: Sequence[SecurityRecord]) -> None:
        acls = {change.key.acl: change.value is not None for change in changes if isinstance(change.key, AclKey)}
        if acls:
            come = [acl for acl, there in acls.items() if there]
            self.authorizer.change(acls.keys() - come, come)
            self.topic_rights.change(acls.keys() - come, come)
        if any(isinstance(change.key, QuotaKey) for change in changes):
            self.quotas.replace(self.store.state.quotas)
        self.rights.changed.notify_waiters()
