"""Fields of the messages that only nodes of a cluster send each other.

Facts of Kafka's protocol up to 3.9, in the notation of `kafka/codec/messages.py`. Nine are Muster's own: ClusterState
is what a node asks the controller for, in one message where Kafka's controllers push two (LeaderAndIsr,
UpdateMetadata); NoteElections carries records of the election ledger to its leader; ReadSecurity and WriteSecurity
carry users, access control lists, tokens and quotas, which every node reads and writes at their leader; LogEnds and
GroupsWithSettings ask what other nodes know; by ProveNode a caller and the listener show that they know the cluster's
secret; NoteAborts and ReadAborts write and read entries of `__aborts` at its leader.
"""

FIELDS = """
ControlledShutdownRequest 3-3 flexible 3+
    broker_id: int32
    broker_epoch: int64 = -1

ControlledShutdownResponse 3-3 flexible 3+
    error_code: int16
    remaining_partitions: []
        topic_name: string
        partition_index: int32

AlterPartitionRequest 3-3 flexible 3+
    broker_id: int32
    broker_epoch: int64 = -1
    topics: []
        topic_id: uuid
        partitions: []
            partition_index: int32
            leader_epoch: int32
            new_isr_with_epochs: []
                broker_id: int32
                broker_epoch: int64 = -1
            leader_recovery_state: int8
            partition_epoch: int32

AlterPartitionResponse 3-3 flexible 3+
    throttle_time_ms: int32
    error_code: int16
    topics: []
        topic_id: uuid
        partitions: []
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32
            isr: [int32]
            leader_recovery_state: int8
            partition_epoch: int32

ClusterStateRequest 0-0 flexible 0+
    cluster_id: string
    node_id: int32
    node_epoch: int64
    controller_epoch: int32 = -1
    sequence: int64 = -1
    max_wait_ms: int32
    offline: []
        topic_id: uuid
        partition: int32
        reason: string

ClusterStateResponse 0-0 flexible 0+
    error_code: int16
    controller_id: int32 = -1
    controller_epoch: int32 = -1
    sequence: int64 = -1
    full: bool
    nodes: []
        node_id: int32
        node_epoch: int64
        state: int8
        rack: string? = null
        endpoints: []
            listener: string
            host: string
            port: int32
        session_ms: int32 = 0 tag 0
        proves: bool tag 1
    topics: []
        topic_id: uuid
        name: string
        internal: bool
        deleted: bool
        configs: []
            name: string
            value: string
        partitions: []
            index: int32
            leader: int32
            leader_epoch: int32
            partition_epoch: int32
            isr: [int32]
            elr: [int32]
            replicas: [int32]
            adding: [int32]
            removing: [int32]
            unclean_epoch: int32 = -1
            directories: []? = null tag 0
                node_id: int32
                directory: string

NoteElectionsRequest 0-0 flexible 0+
    elections: []
        key: bytes
        value: bytes

NoteElectionsResponse 0-0 flexible 0+
    error_code: int16

NoteAbortsRequest 0-0 flexible 0+
    entries: []
        key: bytes
        value: bytes

NoteAbortsResponse 0-0 flexible 0+
    error_code: int16

ReadAbortsRequest 0-0 flexible 0+
    transactional_id: string
    most: int32

ReadAbortsResponse 0-0 flexible 0+
    error_code: int16
    entries: []
        value: bytes

ReadSecurityRequest 0-0 flexible 0+
    offset: int64
    last_epoch: int32 = -1
    max_wait_ms: int32

ReadSecurityResponse 0-0 flexible 0+
    error_code: int16
    start_offset: int64 = -1
    high_watermark: int64 = -1
    end_offset: int64 = -1
    anew: bool
    records: bytes

WriteSecurityRequest 0-0 flexible 0+
    base_offset: int64
    last_epoch: int32 = -1
    changes: []
        key: bytes
        value: bytes? = null

WriteSecurityResponse 0-0 flexible 0+
    error_code: int16
    end_offset: int64 = -1

GroupsWithSettingsRequest 0-0 flexible 0+
    most: int32

GroupsWithSettingsResponse 0-0 flexible 0+
    error_code: int16
    groups: [string]

ProveNodeRequest 0-0 flexible 0+
    node_id: int32
    nonce: bytes
    proof: bytes

ProveNodeResponse 0-0 flexible 0+
    error_code: int16
    nonce: bytes
    proof: bytes

LogEndsRequest 0-0 flexible 0+
    earliest: bool
    topics: []
        topic_id: uuid
        partitions: [int32]

LogEndsResponse 0-0 flexible 0+
    error_code: int16
    topics: []
        topic_id: uuid
        partitions: []
            index: int32
            offset: int64
"""
