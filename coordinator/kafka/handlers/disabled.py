"""Where nobody is asked what they may, there are no lists: Kafka's words for that."""

from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall

SECURITY_DISABLED: Final = 54
NO_AUTHORIZER: Final = "No Authorizer is configured: this node has authorizer=none."


class DisabledAclHandlers:
    """Handlers that refuse."""

    async def describe_acls(self, request: Any, call: KafkaCall) -> Any:
        return struct("DescribeAclsResponse")(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER)

    async def create_acls(self, request: Any, call: KafkaCall) -> Any:
        made = struct("CreateAclsResponse.results")
        rows = [made(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.creations]
        return struct("CreateAclsResponse")(results=rows)

    async def delete_acls(self, request: Any, call: KafkaCall) -> Any:
        made = struct("DeleteAclsResponse.filter_results")
        rows = [made(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.filters]
        return struct("DeleteAclsResponse")(filter_results=rows)
