"""Each log has what its callers may call: the ports of a log, held against the classes that implement them."""

import inspect
from typing import Any

import pytest

from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.server.kafka_backend.upstream_logs import UpstreamLog, UpstreamRequests
from muster.storage.broker.broker import Broker
from muster.storage.broker.record_log import RecordLog, StagedLog, StandaloneLog
from muster.storage.broker.requests import RecordRequests

SET_ON_EACH = {"settings", "cluster_id", "data_dir", "ahead", "broker", "topics"}
"""Attributes of the instance: the type checker holds these."""


def names_of(port: type) -> set[str]:
    return {name for each in port.__mro__ if each is not object for name in vars(each) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("log", "port"),
    [
        (Broker, StandaloneLog),
        (Broker, StagedLog),
        (ReplicatedLog, StagedLog),
        (UpstreamLog, RecordLog),
        (UpstreamRequests, RecordRequests),
    ],
)
def test_a_log_has_what_its_port_names(log: type, port: type) -> None:
    missing = {name for name in names_of(port) if not hasattr(log, name)} - SET_ON_EACH
    assert not missing


@pytest.mark.parametrize("log", [ReplicatedLog, UpstreamLog])
def test_a_log_without_a_directory_of_its_own_inherits_nothing_of_a_broker(log: type[Any]) -> None:
    assert not issubclass(log, Broker)
    assert inspect.getattr_static(log, "__getattr__", None) is None
