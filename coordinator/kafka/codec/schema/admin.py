"""Fields of the messages for elections, partition reassignments and log directories.

Facts of Kafka's protocol up to 4.1, in the notation of `kafka/codec/messages.py`.
"""

FIELDS = """
ElectLeadersRequest 0-2 flexible 2+
    election_type: int8 1+
    topic_partitions: []?
        topic: string
        partitions: [int32]
    timeout_ms: int32 = 60000

ElectLeadersResponse 0-2 flexible 2+
    throttle_time_ms: int32
    error_code: int16 1+
    replica_election_results: []
        topic: string
        partition_result: []
            partition_id: int32
            error_code: int16
            error_message: string? = null

AlterPartitionReassignmentsRequest 0-1 flexible 0+
    timeout_ms: int32 = 60000
    allow_replication_factor_change: bool 1+ = true
    topics: []
        name: string
        partitions: []
            partition_index: int32
            replicas: [int32]? = null

AlterPartitionReassignmentsResponse 0-1 flexible 0+
    throttle_time_ms: int32
    allow_replication_factor_change: bool 1+ = true
    error_code: int16
    error_message: string? = null
    responses: []
        name: string
        partitions: []
            partition_index: int32
            error_code: int16
            error_message: string? = null

ListPartitionReassignmentsRequest 0-0 flexible 0+
    timeout_ms: int32 = 60000
    topics: []? = null
        name: string
        partition_indexes: [int32]

ListPartitionReassignmentsResponse 0-0 flexible 0+
    throttle_time_ms: int32
    error_code: int16
    error_message: string? = null
    topics: []
        name: string
        partitions: []
            partition_index: int32
            replicas: [int32]
            adding_replicas: [int32]
            removing_replicas: [int32]

DescribeLogDirsRequest 0-4 flexible 2+
    topics: []?
        topic: string
        partitions: [int32]

DescribeLogDirsResponse 0-4 flexible 2+
    throttle_time_ms: int32
    error_code: int16 3+
    results: []
        error_code: int16
        log_dir: string
        topics: []
            name: string
            partitions: []
                partition_index: int32
                partition_size: int64
                offset_lag: int64
                is_future_key: bool
        total_bytes: int64 4+ = -1
        usable_bytes: int64 4+ = -1
"""
