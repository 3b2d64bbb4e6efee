"""What is spoken between nodes: Kafka's wire protocol where it knows node epochs, and six messages of ours."""

from typing import Final

from muster.coordinator.kafka.apis import API_VERSIONS, Api

FETCH: Final = 1
CONTROLLED_SHUTDOWN: Final = 7
OFFSET_FOR_LEADER_EPOCH: Final = 23
ALTER_PARTITION: Final = 56
CLUSTER_STATE: Final = 1000
NOTE_ELECTIONS: Final = 1001
READ_SECURITY: Final = 1002
WRITE_SECURITY: Final = 1003
LOG_ENDS: Final = 1004
GROUPS_WITH_SETTINGS: Final = 1005

MOST_REQUEST_BYTES: Final = 32 << 20
"""Of one request, without its length: more is neither sent nor taken."""

# Who waits for long, or may get much, holds up what comes behind on its connection.
NODE_APIS: Final = (
    Api(FETCH, "Fetch", 15, 15, parks=True),
    Api(CONTROLLED_SHUTDOWN, "ControlledShutdown", 3, 3),
    Api(API_VERSIONS, "ApiVersions", 0, 3),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 4, 4),
    Api(ALTER_PARTITION, "AlterPartition", 3, 3),
    Api(CLUSTER_STATE, "ClusterState", 0, 0, parks=True),
    Api(NOTE_ELECTIONS, "NoteElections", 0, 0, parks=True),
    Api(READ_SECURITY, "ReadSecurity", 0, 0, parks=True),
    Api(WRITE_SECURITY, "WriteSecurity", 0, 0, parks=True),
    Api(LOG_ENDS, "LogEnds", 0, 0),
    Api(GROUPS_WITH_SETTINGS, "GroupsWithSettings", 0, 0, parks=True),
)

VERSION_OF: Final = {api.name: api.last for api in NODE_APIS}
KEY_OF: Final = {api.name: api.key for api in NODE_APIS}

NAME_THE_CLUSTER: Final = frozenset({API_VERSIONS, FETCH, CLUSTER_STATE})
"""Those whose requests say themselves which cluster is meant, and the first, which is for everybody."""


def client_id_of(cluster_id: str, node: int) -> str:
    """How a node calls itself in the header of its requests, some of which say nowhere else which cluster is meant.

    >>> client_id_of("Zm9v", 2)
    'Zm9v/2'
    """
    return f"{cluster_id}/{node}"


def cluster_of(client_id: str) -> str:
    """
    >>> cluster_of("Zm9v/2"), cluster_of("consumer-1")
    ('Zm9v', '')
    """
    return client_id.rpartition("/")[0]
