"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.rights.groups import partly
from muster.coordinator.kafka.rights.judging import MOST_TOLD, Instead, Judge, May, Partly, Verdict, code_of
from muster.coordinator.security.acl.model import CLUSTER_NAME
from muster.coordinator.security.acl.rights import API_RIGHTS, Right

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's types of what has settings, which are not those of its access control lists."""

NEEDS: Final = {TOPIC: 0, GROUP: 1, BROKER: 2, BROKER_LOGGER: 2, CLIENT_METRICS: 2}
"""By which of an API's rights each is judged. Types that there are not, the handler has words for."""

LIST: Final = "ListConfigResources"
LISTED, TOPICS_SEEN, GROUPS_SEEN = API_RIGHTS[LIST]
SEEN: Final = {TOPIC: TOPICS_SEEN, GROUP: GROUPS_SEEN}


def of_resources(api: str, rows_in: str) -> Judge:
    """For an API whose request lists resources; the answer has a row for each in `rows_in`."""
    rights = API_RIGHTS[api]
    path = f"{api}Response.{rows_in}"

    def judge(may: May, request: Any, call: KafkaCall) -> Verdict:
        may_each = {right: may.each(call, right, len(request.resources)) for right in rights}
        allowed, rows = [], []
        for resource in request.resources:
            right = right_of(rights, resource)
            if right is None or may_each[right](judged_by(right, resource)):
                allowed.append(resource)
            else:
                rows.append(refused(path, may, call, right, resource, len(request.resources)))
                may.told(call, right, [judged_by(right, resource)] if len(rows) <= MOST_TOLD else [], api=api)
        return partly(request, "resources", allowed, f"{api}Response", rows_in, once(rows)) if rows else None

    return judge


def right_of(rights: tuple[Right, ...], resource: Any) -> Right | None:
    place = NEEDS.get(resource.resource_type)
    return None if place is None else rights[place]


def judged_by(right: Right, resource: Any) -> str:
    return str(resource.resource_name) if right.of else CLUSTER_NAME


def refused(path: str, may: May, call: KafkaCall, right: Right, resource: Any, among: int) -> Any:
    row = struct(path)(
        error_code=code_of(right),
        error_message=may.why(call, right, judged_by(right, resource), among),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    if path.startswith("DescribeConfigs"):
        row.configs = []
    return row


def once(rows: list[Any]) -> list[Any]:
    return list({(row.resource_type, row.resource_name): row for row in rows}.values())


def list_config_resources(may: May, request: Any, call: KafkaCall) -> Verdict:
    """Kafka lists every topic to who may look at the cluster's settings; here none that they may not know of."""
    if not may(call, LISTED, api=LIST):
        return Instead(struct("ListConfigResourcesResponse")(error_code=code_of(LISTED)))

    def amend(answer: Any) -> Any:
        rows = answer.config_resources
        sees = {kind: may.each(call, right, len(rows)) for kind, right in SEEN.items()}
        answer.config_resources = [
            row for row in rows if row.resource_type not in sees or sees[row.resource_type](row.resource_name)
        ]
        return answer

    return Partly(request, amend)
