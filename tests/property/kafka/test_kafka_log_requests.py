"""Whatever a well-formed request says, the log's handlers have an answer to it that can be sent."""

import random

import pytest

from muster.coordinator.kafka.codec.codec import decode_frame, encode
from muster.coordinator.kafka.codec.messages import all_messages
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka.protocol import APIS
from muster.storage.records.batch import encode_batch
from tests.support.kafka.door import Door, play
from tests.support.kafka.messages import random_message
from tests.unit.storage.logs import T0

LOG_APIS = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId",
    "CreatePartitions", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs",
}  # fmt: skip
CASES = [(api.name, version) for api in APIS if api.name in LOG_APIS for version in range(api.first, api.last + 1)]
ROUNDS = 100
NAMES = ["t", "t", "nowhere", "__consumer_offsets", "", "x" * 300]


def test_every_api_of_the_log_is_tried() -> None:
    assert {name for name, _ in CASES} == LOG_APIS


def likely(message: object, rng: random.Random) -> None:
    """Make some of it hit what is there: names of topics, small numbers, batches that are nearly good."""
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        if name in ("name", "topic", "resource_name") and rng.random() < 0.8:
            setattr(message, name, rng.choice(NAMES))
        elif name in ("partition", "index", "partition_index", "session_id", "num_partitions") and rng.random() < 0.7:
            setattr(message, name, rng.choice([0, 0, 1, 2, 3, -1]))
        elif name in ("current_leader_epoch", "replication_factor", "acks") and rng.random() < 0.7:
            setattr(message, name, rng.choice([-1, 0, 1]))
        elif name in ("fetch_offset", "timestamp", "offset") and rng.random() < 0.7:
            setattr(message, name, rng.choice([-3, -2, -1, 0, 1, 2, T0]))
        elif name in ("resource_type", "config_operation") and rng.random() < 0.8:
            setattr(message, name, rng.choice([0, 1, 2, 2, 3, 4, 32]))
        elif name == "records" and rng.random() < 0.8:
            setattr(message, name, spoilt(rng))
        elif name == "transactional_id" and rng.random() < 0.8:
            setattr(message, name, None)
        elif name == "max_wait_ms":
            message.max_wait_ms = 0  # type: ignore[attr-defined]
        for each in value if isinstance(value, list) else ():
            likely(each, rng)


def spoilt(rng: random.Random) -> bytes:
    """A record batch; half of them with one byte changed, or cut off."""
    data = bytearray(encode_batch([(T0, None, rng.randbytes(20), ())] * rng.randrange(1, 4)))
    if rng.random() < 0.25:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.25:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


@pytest.mark.parametrize(("api", "version"), CASES, ids=[f"{api}-{version}" for api, version in CASES])
def test_a_request_is_answered(api: str, version: int) -> None:
    rng = random.Random(f"{api} {version}")

    async def story(door: Door) -> None:
        door.broker.append("t", 0, encode_batch([(T0, None, b"x", ())]), T0)
        door.broker.flush()
        for _ in range(ROUNDS):
            message = random_message(all_messages()[f"{api}Request"], version, rng)
            likely(message, rng)
            data = b"".join(encode(f"{api}Request", version, message))
            request = decode_frame(f"{api}Request", version, data)
            fields = {name: getattr(request, name) for name in request.__slots__}
            try:
                answer = await door.ask(api, version, **fields)
            except HangUp:
                assert (api, request.acks) == ("Produce", 0)
            else:
                assert answer is not None or request.acks == 0
        if "t" in door.broker.topics():
            assert door.broker.append("t", 0, encode_batch([(T0, None, b"still here", ())]), T0)

    play(story, num__partitions=1)
