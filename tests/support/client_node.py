"""A node for each file of tests that brings none of its own, and topics that no other test uses."""

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from muster.client import Admin, Producer
from tests.support.node import NodeProcess, running_node

names = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("client") / "data")) as running:
        yield running


@pytest.fixture
def admin(node: NodeProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.address) as admin:
        yield admin


@pytest.fixture
def producer(node: NodeProcess) -> Iterator[Producer]:
    with Producer(bootstrap_servers=node.address, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of four partitions that no other test uses; its name serves as group id too."""
    name = f"topic-{next(names)}"
    admin.create_topic(name, 4)
    return name


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens: the port is taken, but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
