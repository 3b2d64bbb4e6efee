"""What is asked of the cluster as a whole: access control lists, quotas, users. All of it is refused, or nothing."""

from collections.abc import Callable
from typing import Any, Final

from muster.coordinator.kafka.authorization.judging import (
    AccessCheck,
    Judge,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.authorization.operations import allowed_operations
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.security.model import ResourceType
from muster.coordinator.security.rights import API_RIGHTS

(DESCRIBE_CLUSTER_OPERATIONS_RIGHT,) = API_RIGHTS["DescribeCluster"]


def judge_describe_cluster(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Everybody may know the nodes; what he may do there is told to who may look at the cluster."""
    if not request.include_cluster_authorized_operations:
        return None

    def amend(answer: Any) -> Any:
        known = may.quietly(call, DESCRIBE_CLUSTER_OPERATIONS_RIGHT)
        answer.cluster_authorized_operations = allowed_operations(may, call, ResourceType.CLUSTER) if known else 0
        return answer

    return PartialRequest(request, amend)


def make_cluster_judge(api: str) -> Judge:
    (right,) = API_RIGHTS[api]
    answer = REFUSAL_SHAPES.get(api, refuse_with_code)

    def judge(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        if may(call, right, api=api):
            return None
        said = {"error_code": refusal_code(right), "error_message": may.why(call, right)}
        refusal = answer(f"{api}Response", request, said)
        # Written here, for where a request has very many rows this is a thread.
        return RefusalAnswer(EncodedAnswer(encode(f"{api}Response", call.api_version, refusal)))

    return judge


def refuse_with_code(path: str, request: Any, said: dict[str, Any]) -> Any:
    return struct(path)(**said)


def refuse_quotas(path: str, request: Any, said: dict[str, Any]) -> Any:
    return struct(path)(entries=None, **said)


def refuse_creations(path: str, request: Any, said: dict[str, Any]) -> Any:
    return struct(path)(results=[struct(f"{path}.results")(**said) for _ in request.creations])


def refuse_deletions(path: str, request: Any, said: dict[str, Any]) -> Any:
    return struct(path)(filter_results=[struct(f"{path}.filter_results")(**said) for _ in request.filters])


def refuse_quota_entries(path: str, request: Any, said: dict[str, Any]) -> Any:
    made, part = struct(f"{path}.entries"), struct(f"{path}.entries.entity")
    return struct(path)(
        entries=[
            made(
                entity=[part(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity], **said
            )
            for entry in request.entries
        ]
    )


def refuse_users(path: str, request: Any, said: dict[str, Any]) -> Any:
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return struct(path)(results=[struct(f"{path}.results")(user=name, **said) for name in names])


def refuse_elections(path: str, request: Any, said: dict[str, Any]) -> Any:
    """Version 0 has no code for the whole; who asks for all partitions is not told which there are."""
    made = struct(f"{path}.replica_election_results")
    row = struct(f"{path}.replica_election_results.partition_result")
    rows = [
        made(topic=topic.topic, partition_result=[row(partition_id=number, **said) for number in topic.partitions])
        for topic in request.topic_partitions or ()
    ]
    return struct(path)(error_code=said["error_code"], replica_election_results=rows)


REFUSAL_SHAPES: Final[dict[str, Callable[[str, Any, dict[str, Any]], Any]]] = {
    "CreateAcls": refuse_creations,
    "ElectLeaders": refuse_elections,
    "DeleteAcls": refuse_deletions,
    "AlterClientQuotas": refuse_quota_entries,
    "DescribeClientQuotas": refuse_quotas,
    "AlterUserScramCredentials": refuse_users,
}
"""Those whose answer has no code for all of it, or more beside it."""
