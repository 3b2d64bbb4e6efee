"""Judges of the admin APIs that need code: the rest of them are rows of `answer_shapes`.

DescribeCluster tells authorized operations. Settings are judged resource by resource, each by the right to its type
(DescribeConfigs, AlterConfigs, IncrementalAlterConfigs). ListConfigResources leaves out what the caller may not see,
where Kafka lists every topic to a caller that may describe the cluster's settings.
"""

from typing import Any, Final

from muster.coordinator.kafka.authorization.judge import (
    MAX_AUDITED_REFUSALS,
    AccessCheck,
    Judge,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    allowed_operations,
    refusal_code,
)
from muster.coordinator.kafka.authorization.table_judges import partial_request
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.access_model import CLUSTER_NAME, ResourceType
from muster.coordinator.security.rights import API_RIGHTS, RequiredRight

# The cluster as a whole
# ----------------------

(DESCRIBE_CLUSTER_OPERATIONS_RIGHT,) = API_RIGHTS["DescribeCluster"]


def judge_describe_cluster(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Every caller may list the nodes. Authorized operations are only for callers that may describe the cluster."""
    if not request.include_cluster_authorized_operations:
        return None

    def amend(answer: Any) -> Any:
        known = may.is_allowed(call, DESCRIBE_CLUSTER_OPERATIONS_RIGHT)
        answer.cluster_authorized_operations = allowed_operations(may, call, ResourceType.CLUSTER) if known else 0
        return answer

    return PartialRequest(request, amend)


# Settings
# --------

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's types of resources with settings; they differ from those of its access control lists."""

RIGHT_BY_RESOURCE_TYPE: Final = {TOPIC: 0, GROUP: 1, BROKER: 2, BROKER_LOGGER: 2, CLIENT_METRICS: 2}
"""The index of the right that each type needs. The handler refuses unknown types."""

LIST_CONFIG_RESOURCES: Final = "ListConfigResources"
LIST_RESOURCES_RIGHT, VISIBLE_TOPIC_RIGHT, VISIBLE_GROUP_RIGHT = API_RIGHTS[LIST_CONFIG_RESOURCES]
VISIBLE_RIGHTS: Final = {TOPIC: VISIBLE_TOPIC_RIGHT, GROUP: VISIBLE_GROUP_RIGHT}


def make_resource_judge(api: str, rows_in: str) -> Judge:
    """For an API whose request lists resources; the answer's list `rows_in` has a row for each."""
    rights = API_RIGHTS[api]
    path = f"{api}Response.{rows_in}"

    def judge(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        may_each = {right: may.name_filter(call, right, len(request.resources)) for right in rights}
        allowed, rows = [], []
        for resource in request.resources:
            right = resource_right(rights, resource)
            if right is None or may_each[right](judged_name(right, resource)):
                allowed.append(resource)
            else:
                rows.append(refused_resource_row(path, may, call, right, resource, len(request.resources)))
                may.audit_refusals(
                    call, right, [judged_name(right, resource)] if len(rows) <= MAX_AUDITED_REFUSALS else [], api=api
                )
        return (
            partial_request(request, "resources", allowed, f"{api}Response", rows_in, unique_rows(rows))
            if rows
            else None
        )

    return judge


def resource_right(rights: tuple[RequiredRight, ...], resource: Any) -> RequiredRight | None:
    place = RIGHT_BY_RESOURCE_TYPE.get(resource.resource_type)
    return None if place is None else rights[place]


def judged_name(right: RequiredRight, resource: Any) -> str:
    return str(resource.resource_name) if right.of else CLUSTER_NAME


def refused_resource_row(
    path: str, may: AccessCheck, call: KafkaCall, right: RequiredRight, resource: Any, among: int
) -> Any:
    row = struct(path)(
        error_code=refusal_code(right),
        error_message=may.explain_refusal(call, right, judged_name(right, resource), among),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    if path.startswith("DescribeConfigs"):
        row.configs = []
    return row


def unique_rows(rows: list[Any]) -> list[Any]:
    return list({(row.resource_type, row.resource_name): row for row in rows}.values())


def judge_list_config_resources(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Leaves out topics and groups that the caller may not describe. Kafka lists them all."""
    if not may(call, LIST_RESOURCES_RIGHT, api=LIST_CONFIG_RESOURCES):
        return RefusalAnswer(struct("ListConfigResourcesResponse")(error_code=refusal_code(LIST_RESOURCES_RIGHT)))

    def amend(answer: Any) -> Any:
        rows = answer.config_resources
        sees = {kind: may.name_filter(call, right, len(rows)) for kind, right in VISIBLE_RIGHTS.items()}
        answer.config_resources = [
            row for row in rows if row.resource_type not in sees or sees[row.resource_type](row.resource_name)
        ]
        return answer

    return PartialRequest(request, amend)
