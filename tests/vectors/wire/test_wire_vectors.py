"""Messages between nodes: our bytes are those of Kafka's own classes, and its bytes are read as what they say."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.codec.messages import STRUCT, FieldSchema, all_messages

VECTORS = [json.loads(line) for line in Path(__file__).with_name("nodes.jsonl").read_text("utf-8").splitlines()]


def camel(name: str) -> str:
    """
    >>> camel("new_isr_with_epochs")
    'newIsrWithEpochs'
    """
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def made(path: str, fields: list[FieldSchema], said: dict[str, Any], version: int) -> Any:
    """The message that Kafka's JSON says."""
    given = {one.name: value_of(one, said[camel(one.name)], version) for one in fields if camel(one.name) in said}
    return struct(path)(**given)


def value_of(one: FieldSchema, said: Any, version: int) -> Any:
    if said is None:
        return None
    if one.type == STRUCT and one.array:
        return [made(one.path, one.fields, each, version) for each in said]
    if one.type == STRUCT:
        return made(one.path, one.fields, said, version)
    return base64.urlsafe_b64decode(f"{said}==") if one.type == "uuid" else said


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{each['message']}-{each['version']}" for each in VECTORS])
def test_kafka_and_we_write_the_same_bytes(vector: dict[str, Any]) -> None:
    name, version, data = vector["message"], vector["version"], bytes.fromhex(vector["bytes"])
    message = made(name, all_messages()[name].fields, vector["says"], version)
    assert b"".join(encode(name, version, message)) == data
    assert decode_frame(name, version, data) == message


def test_every_message_between_nodes_that_kafka_has_is_judged() -> None:
    judged = {each["message"] for each in VECTORS}
    asked = ("Fetch", "OffsetForLeaderEpoch", "AlterPartition", "ControlledShutdown")
    assert judged == {f"{api}{kind}" for api in asked for kind in ("Request", "Response")}
    assert {"replicaState", "clusterId"} <= {key for each in VECTORS for key in each["says"]}
    assert any(part["newIsrWithEpochs"] for part in alter_parts())


def alter_parts() -> list[dict[str, Any]]:
    requests = [each["says"] for each in VECTORS if each["message"] == "AlterPartitionRequest"]
    return [part for says in requests for topic in says["topics"] for part in topic["partitions"]]
