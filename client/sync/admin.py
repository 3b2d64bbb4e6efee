"""The admin client: topics, groups, offsets, and why a group rebalanced."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.aio.admin import AsyncAdmin
from muster.client.twins import iterating, shared_loop, waiting


class Admin:
    """Everything an operator may ask or change. Refusals are typed errors that name the topic or group.

    Safe to share between threads.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._twin = AsyncAdmin(config, **properties)
        self._loop = shared_loop()

    nodes = waiting(AsyncAdmin.nodes)
    conditions = waiting(AsyncAdmin.conditions)
    node_status = waiting(AsyncAdmin.node_status)
    zookeeper_away = waiting(AsyncAdmin.zookeeper_away)
    describe_node = waiting(AsyncAdmin.describe_node)

    create_topic = waiting(AsyncAdmin.create_topic)
    delete_topics = waiting(AsyncAdmin.delete_topics)
    create_partitions = waiting(AsyncAdmin.create_partitions)
    list_topics = waiting(AsyncAdmin.list_topics)
    describe_topic = waiting(AsyncAdmin.describe_topic)
    alter_topic = waiting(AsyncAdmin.alter_topic)
    describe_configs = waiting(AsyncAdmin.describe_configs)
    delete_records = waiting(AsyncAdmin.delete_records)
    list_offsets = waiting(AsyncAdmin.list_offsets)

    list_groups = waiting(AsyncAdmin.list_groups)
    describe_group = waiting(AsyncAdmin.describe_group)
    describe_groups = waiting(AsyncAdmin.describe_groups)
    delete_groups = waiting(AsyncAdmin.delete_groups)
    remove_members = waiting(AsyncAdmin.remove_members)
    group_settings = waiting(AsyncAdmin.group_settings)
    alter_group_settings = waiting(AsyncAdmin.alter_group_settings)

    group_holds = waiting(AsyncAdmin.group_holds)
    freeze_group = waiting(AsyncAdmin.freeze_group)
    canary = waiting(AsyncAdmin.canary)
    start_canary = waiting(AsyncAdmin.start_canary)
    end_canary = waiting(AsyncAdmin.end_canary)
    deploy_group = waiting(AsyncAdmin.deploy_group)
    drain_member = waiting(AsyncAdmin.drain_member)
    undrain_member = waiting(AsyncAdmin.undrain_member)
    pin_partition = waiting(AsyncAdmin.pin_partition)
    unpin_partition = waiting(AsyncAdmin.unpin_partition)
    resume_group = waiting(AsyncAdmin.resume_group)

    acls = waiting(AsyncAdmin.acls)
    create_acls = waiting(AsyncAdmin.create_acls)
    delete_acls = waiting(AsyncAdmin.delete_acls)
    check_acl = waiting(AsyncAdmin.check_acl)
    users = waiting(AsyncAdmin.users)
    put_users = waiting(AsyncAdmin.put_users)
    delete_users = waiting(AsyncAdmin.delete_users)
    tokens = waiting(AsyncAdmin.tokens)
    create_token = waiting(AsyncAdmin.create_token)
    revoke_tokens = waiting(AsyncAdmin.revoke_tokens)
    quotas = waiting(AsyncAdmin.quotas)
    alter_quotas = waiting(AsyncAdmin.alter_quotas)

    describe_cluster = waiting(AsyncAdmin.describe_cluster)
    topic_copies = waiting(AsyncAdmin.topic_copies)
    elect_leaders = waiting(AsyncAdmin.elect_leaders)
    reassign_partitions = waiting(AsyncAdmin.reassign_partitions)
    reassignments = waiting(AsyncAdmin.reassignments)
    drain_node = waiting(AsyncAdmin.drain_node)
    explain_elections = waiting(AsyncAdmin.explain_elections)

    list_transactions = waiting(AsyncAdmin.list_transactions)
    describe_transaction = waiting(AsyncAdmin.describe_transaction)
    terminate_transaction = waiting(AsyncAdmin.terminate_transaction)
    explain_transactions = waiting(AsyncAdmin.explain_transactions)
    describe_producers = waiting(AsyncAdmin.describe_producers)
    abort_transaction = waiting(AsyncAdmin.abort_transaction)

    group_offsets = waiting(AsyncAdmin.group_offsets)
    alter_offsets = waiting(AsyncAdmin.alter_offsets)
    delete_offsets = waiting(AsyncAdmin.delete_offsets)
    migrate_offsets = waiting(AsyncAdmin.migrate_offsets)
    group_lag = waiting(AsyncAdmin.group_lag)
    commit_history = waiting(AsyncAdmin.commit_history)

    explain = waiting(AsyncAdmin.explain)
    stalls = waiting(AsyncAdmin.stalls)
    moves = waiting(AsyncAdmin.moves)
    live_snapshot = waiting(AsyncAdmin.live_snapshot)
    watch = iterating(AsyncAdmin.watch)

    close = waiting(AsyncAdmin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
