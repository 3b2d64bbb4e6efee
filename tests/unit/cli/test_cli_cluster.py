"""`muster cluster` against the real service over an image that a test holds in its hands."""

import asyncio
import json
import threading
from collections.abc import Iterator

import grpc
import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.cli.nodes.cluster import fetch_elections
from muster.client.errors import Refused
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.election_ledger import ElectionRecord, ElectionReport, LossRecord
from muster.coordinator.replication.protocol.cluster_metadata import NodeEndpoint, NodeView, TopicPartition
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.server.cluster_backend.cluster_service import CLUSTER_SERVICE
from muster.coordinator.server.grpc.adapter import GrpcMethods
from muster.coordinator.server.rpc_dispatch import methods_of
from tests.support.operated import Given, view


class Served(Given):
    """In a thread, at `port`."""

    def __init__(self) -> None:
        super().__init__()
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._up.wait()
        here = (NodeEndpoint("GRPC", "127.0.0.1", self.port),)
        self.hears({}, [NodeView(1, 50, rack="a", endpoints=here), NodeView(2, 51, endpoints=here)])

    async def _serve(self) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((GrpcMethods(methods_of(CLUSTER_SERVICE, self.service), ()),))
        self.port = server.add_insecure_port("127.0.0.1:0")
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        await server.start()
        self._up.set()
        await self._over.wait()
        await server.stop(0)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served()
    monkeypatch.setenv("MUSTER_BOOTSTRAP", f"127.0.0.1:{served.port}")
    yield served
    served.stop()


Said = tuple[int, str, str]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    code = main(["cluster", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_status_and_nodes(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "status")
    assert (code, out.splitlines()) == (
        Exit.OK,
        [
            "CLUSTER  CONTROLLER  NODES  UP  PARTITIONS  OFFLINE  UNDER-MIN-ISR  UNDER-REPLICATED",
            "c1       1           4      2   4           1        2              3",
        ],
    )
    assert json.loads(run(capsys, "status", "-o", "json")[1])["under_min_isr"] == 2
    served.drains = frozenset({2})
    _, out, _ = run(capsys, "nodes")
    assert [line.split() for line in out.splitlines()] == [
        ["NODE", "STATE", "ADDRESS", "CONTROLLER", "LEADS", "COPIES", "BEHIND"],
        ["1", "live", f"127.0.0.1:{served.port}", "yes", "2", "4", "2"],
        ["2", "drained", f"127.0.0.1:{served.port}", "no", "1", "4", "1"],
        ["3", "gone", "-", "no", "0", "3", "2"],
        ["4", "gone", "-", "no", "0", "1", "1"],
    ]
    assert json.loads(run(capsys, "nodes", "-o", "json")[1])[0]["known"] == 17


def test_partitions_have_kafka_s_columns(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "partitions")
    assert [line.split() for line in out.splitlines()][:4] == [
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "OFFLINE"],
        ["orders", "0", "1", "1,2,3", "1,2", "-", "3"],
        ["orders", "1", "2", "1,2,3", "2", "1", "3"],
        ["orders", "2", "-", "1,2,3", "3", "-", "3"],
    ]
    for flag, rows in (("--under-replicated", 3), ("--under-min-isr", 2), ("--offline", 1)):
        assert len(run(capsys, "partitions", flag)[1].splitlines()) == 1 + rows
    assert run(capsys, "partitions", "--topic", "others")[1].count("\n") == 1


def test_elections_are_asked_for(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.codes = {TopicPartition("orders", 0): ErrorCode.NONE}
    assert run(capsys, "elect", "orders:0") == (Exit.OK, "", "elected leaders of 1 partition\n")
    served.codes |= {TopicPartition("orders", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    code, _, err = run(capsys, "elect", "--all")
    assert code == Exit.FAILURE
    assert err.startswith("elected leaders of 1 partition\nerror: orders-2: ")
    run(capsys, "elect", "--unclean", "orders:2")
    assert [each[1:3] for each in served.asked] == [
        ([TopicPartition("orders", 0)], False),
        (None, False),
        ([TopicPartition("orders", 2)], True),
    ]


def test_a_node_is_drained(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "drain", "1") == (Exit.OK, "", "node 1 is drained: it leads nothing\n")
    served.hears({"orders": {1: view(2, (2,))}})
    assert "still leads 3 partitions" in run(capsys, "drain", "2")[2]
    assert run(capsys, "undrain", "2")[2] == "node 2 may lead again\n"
    assert served.asked == [("drain", 1, True), ("drain", 2, True), ("drain", 2, False)]
    served.code = ErrorCode.RESOURCE_NOT_FOUND
    code, _, err = run(capsys, "drain", "9")
    assert (code, "node 9 is not known" in err) == (Exit.NOT_FOUND, True)


def test_replicas_are_reassigned_and_left_off(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.codes = {TopicPartition("orders", number): ErrorCode.NONE for number in range(2)}
    assert run(capsys, "reassign", "orders:0=2,1", "orders:1=cancel")[0] == Exit.OK
    [(_, wanted, _)] = served.asked
    assert wanted == {TopicPartition("orders", 0): (2, 1), TopicPartition("orders", 1): None}
    _, out, _ = run(capsys, "reassign")
    assert out.splitlines()[1].split() == ["orders", "3", "1", "1,2,4", "1,2", "4", "-"]


def test_a_spread_is_shown_and_done_when_it_is_asked_for(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "spread")
    assert (code, "orders-3 is being reassigned" in err) == (Exit.FAILURE, True)
    served.hears({"orders": dict.fromkeys(range(4), view(1, (1,), (1,)))})
    code, out, err = run(capsys, "spread", "--replication-factor", "2")
    assert (code, served.asked) == (Exit.OK, [])
    assert [line.split()[2:] for line in out.splitlines()[1:]] == [["1", "2,1", "2"]] * 2 + [["1", "1,2", "2"]] * 2
    assert err == "4 partitions to change, 4 replicas to copy\nNothing was changed; add --execute to do it.\n"
    served.codes = {TopicPartition("orders", number): ErrorCode.NONE for number in range(4)}
    assert run(capsys, "spread", "--without", "1", "--execute")[0] == Exit.OK
    [(_, wanted, _)] = served.asked
    assert wanted == dict.fromkeys(served.codes, (2,))
    assert "there is no node 7" in run(capsys, "spread", "--node", "7")[2]
    assert "the 2 nodes" in run(capsys, "spread", "--replication-factor", "3")[2]


def test_why_leaders_changed_and_what_it_cost(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    unit = {"unit": "orders-2", "epoch": 8}
    election = {"from": 3, "to": 1, "clean": "unclean", "cause": "by operator", "decided_ms": 0, "took_ms": 1_240}
    lost = {"node": 3, "from": 120, "to": 133, "records": 13, "epochs": [6, 7]}
    served.told = [
        ElectionReport(
            ElectionRecord.model_validate(unit | election), (LossRecord.model_validate(unit | {"lost": lost}),)
        )
    ]
    _, out, err = run(capsys, "explain", "--limit", "3", "--topic", "orders")
    assert served.asked == [("explain", 3, "orders")]
    assert out.splitlines()[1].split("  ")[-1] == "by operator"
    assert " orders-2  3     1   unclean  1.24 s  13 " in out
    assert err == "orders-2, epoch 8: node 3 gave up 13 records (120 to 132, written in epoch 6, 7)\n"
    [told] = json.loads(run(capsys, "explain", "-o", "json")[1])
    assert (told["topic"], told["partition"], told["from"], told["took_ms"]) == ("orders", 2, 3, 1_240)
    assert told["lost"] == [{"node": 3, "from": 120, "to": 133, "records": 13, "epochs": [6, 7], "topic": "orders"}]


def test_the_ledger_is_asked_of_a_node_that_has_it(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.here = False
    assert "made with the first" in run(capsys, "explain")[2]
    served.hears({"__elections": {0: view(2, (2,), (2,))}})
    assert "ask one of the nodes [2]" in run(capsys, "explain")[2], "which here is the same once more"


def test_addresses_of_ipv6_are_told_and_asked_in_brackets(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    doors = (NodeEndpoint("GRPC", "::1", 9290), NodeEndpoint("HTTP", "::1", 9291))
    served.hears({}, [NodeView(2, 51, endpoints=doors)])
    told = json.loads(run(capsys, "nodes", "-o", "json")[1])[1]
    assert (told["address"], told["listeners"][1]) == ("[::1]:9290", "HTTP://[::1]:9291")


def test_the_ledger_of_a_node_at_ipv6_is_asked_for_there() -> None:
    class Asked:
        address: str | None = None

        def explain_elections(self, limit: int, topic: str, address: str = "") -> list[ElectionRecord]:
            if not address:
                raise Refused(6, "NOT_LEADER_OR_FOLLOWER", "not here")
            self.address = address
            return []

        def describe_cluster(self, wanted: str, topics: list[str]) -> pb.DescribeClusterResponse:
            answer = pb.DescribeClusterResponse()
            answer.nodes.add(node_id=2, host="::1", port=9290)
            answer.partitions.add(topic="__elections", leader_id=2)
            return answer

    asked = Asked()
    assert fetch_elections(asked, 3, "") == []  # type: ignore[arg-type]
    assert asked.address == "[::1]:9290"


def test_a_node_on_its_own_is_no_cluster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Served._serve.__globals__, "methods_of", lambda service, handlers: {})
    alone = Served()
    try:
        code, out, err = run(capsys, "status", "--bootstrap", f"127.0.0.1:{alone.port}")
    finally:
        alone.stop()
    assert (code, out) == (Exit.NOT_FOUND, "")
    assert f"127.0.0.1:{alone.port} is no part of a cluster; expected a node with inter.broker.listeners" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["elect"], "which partitions is not said, or said twice"),
        (["elect", "--all", "t:0"], "which partitions is not said, or said twice"),
        (["elect", "t"], "'t' names no partition; expected TOPIC:PARTITION"),
        (["elect", "t:x"], "'t:x' names no partition"),
        (["elect", "--unclean", "t:0", "t:1"], "--unclean may lose records; expected one"),
        (["elect", "--unclean", "--all"], "--unclean may lose records; expected one"),
        (["reassign", "t:0"], "'t:0' is not a plan; expected TOPIC:PARTITION=NODE,NODE,..."),
        (["reassign", "t:0=1,two"], "'t:0=1,two' is not a plan"),
        (["drain", "-1"], "-1"),
        (["drain", "one"], "'one' is not a valid integer"),
    ],
)
def test_wrong_words_are_said_before_anybody_is_asked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == Exit.USAGE
    assert said in err
