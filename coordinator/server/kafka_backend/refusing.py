"""What needs a log of the node's own, and is refused over somebody's Kafka: exactly-once sinks, and fences in logs."""

from typing import Any

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import fence_service_pb2
from muster.coordinator.server.backend import claims
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb

CODE: Any = int(ErrorCode.UNSUPPORTED_VERSION)
BUNDLED = "it needs a node that keeps records itself (engine=bundled)"


class RefusedStaging:
    """The Staging service, KB-G3: what Spark's exactly-once sink writes by."""

    def __init__(self, engine: str) -> None:
        self._sentence = (
            f"Records of an exactly-once sink cannot be staged here: this node's engine is {engine}, and {BUNDLED}. "
            "Write to that Kafka with Spark's own Kafka sink instead."
        )

    async def stage_records(
        self, request: staging_pb.StageRecordsRequest, call: object
    ) -> staging_pb.StageRecordsResponse:
        return staging_pb.StageRecordsResponse(error_code=CODE, error_message=self._sentence)

    async def commit_staged(
        self, request: staging_pb.CommitStagedRequest, call: object
    ) -> staging_pb.CommitStagedResponse:
        return staging_pb.CommitStagedResponse(error_code=CODE, error_message=self._sentence)

    async def abort_staged(
        self, request: staging_pb.AbortStagedRequest, call: object
    ) -> staging_pb.AbortStagedResponse:
        return staging_pb.AbortStagedResponse(error_code=CODE, error_message=self._sentence)

    async def topics_of(self, request: object) -> set[str]:
        return set()

    async def close(self) -> None:
        """Nothing is under way."""


class RefusedFencing:
    """The Fencing service: a fence is a line in each log, and these logs are Kafka's."""

    def __init__(self, engine: str) -> None:
        self._refusal = CoordinatorError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a fence cannot be put up here: this node's engine is {engine}, and {BUNDLED}; use a transactional "
            "producer of that Kafka",
        )

    async def claim_fence(
        self, request: fence_service_pb2.ClaimFenceRequest, call: object
    ) -> fence_service_pb2.ClaimFenceResponse:
        return claims.build_fence_refusal(self._refusal)
