"""Nodes and clients as processes of their own: signals, deaths, frozen peers, exit codes."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_node import groups, join_request, lone_member, prepared, state_of
from tests.support.pace import pace

pytestmark = pytest.mark.integration

PATIENCE_S = 60
Run = Callable[[Callable[[], Any]], None]

CHILD = """
import sys
from muster.coordinator.config import load_settings
from muster.coordinator.server.node.main import run_node
sys.exit(run_node(load_settings(None, dict(pair.split("=", 1) for pair in sys.argv[1:])), sys.stdout))
"""


def child(*pairs: str) -> "subprocess.Popen[str]":
    """A node as a process of its own, at which nobody looks."""
    always = ("listeners=127.0.0.1:0", "http.listeners=", "offsets.topic.num.partitions=2")
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *always, *pairs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


VANISHING_CLIENT = """
import sys, grpc
from coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support import stubs as pb_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = pb_grpc.GroupCoordinatorStub(channel)
    request = pb.JoinGroupRequest.FromString(bytes.fromhex(sys.argv[2]))
    request.member_id = stub.JoinGroup(request).member_id
    stub.JoinGroup(request)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_process_that_dies_or_freezes_while_parked_is_forgotten(
    number: signal.Signals, run: Run, tmp_path: Path
) -> None:
    quick = {"grpc_keepalive_time_ms": "1000", "grpc_keepalive_timeout_ms": "500"}

    async def story() -> None:
        async with groups(tmp_path / "d", **quick) as (node, stub):
            await lone_member(stub)
            target, request = f"127.0.0.1:{node.bound.port}", join_request().SerializeToString().hex()
            client = await asyncio.create_subprocess_exec(sys.executable, "-c", VANISHING_CLIENT, target, request)
            try:
                await prepared(stub)
                client.send_signal(number)
                while node.driver.parked:
                    assert await state_of(stub) == "PreparingRebalance"
                assert node.driver.waiting == 0
            finally:
                with suppress(ProcessLookupError):
                    client.kill()
                await client.wait()

    run(story)


def announced(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The line that says that the node answers."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the node did not start: {process.communicate(timeout=PATIENCE_S * pace())[1]}"
    return dict(json.loads(line))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_process_announces_itself_and_drains_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    with child(f"log.dirs={tmp_path / 'd'}", "logging.format=json") as process:
        line = announced(process)
        assert (line["event"], line["host"], line["pid"]) == ("listening", "127.0.0.1", process.pid)
        assert line["port"] > 0
        process.send_signal(number)
        printed, logged = process.communicate(timeout=PATIENCE_S * pace())
    assert (process.returncode, printed) == (0, "")
    told = [json.loads(entry) for entry in logged.splitlines()]
    assert [entry["Body"] for entry in told] == ["listening", "started", "signal", "draining", "stopped"]
    differing = told[1]["Attributes"]
    assert differing["logging.format"] == "json"
    assert differing["log.dirs"] == str(tmp_path / "d")
    assert "group.max.size" not in differing, "a setting at its default"
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_what_keeps_a_node_from_starting_is_one_sentence_and_a_code(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    with child(f"log.dirs={tmp_path / 'd'}") as holder:
        port = announced(holder)["port"]
        try:
            in_use = refused_start(f"log.dirs={tmp_path / 'd'}")
            taken = refused_start(f"log.dirs={tmp_path / 'e'}", f"listeners=127.0.0.1:{port}")
            foreign = refused_start(f"log.dirs={tmp_path / 'foreign'}")
        finally:
            holder.terminate()
            holder.communicate(timeout=PATIENCE_S * pace())
    recount = refused_start(f"log.dirs={tmp_path / 'd'}", "offsets.topic.num.partitions=3")
    assert in_use[0] == 5
    assert f"in use by process {holder.pid}" in in_use[1]
    assert taken[0] == 5
    assert f"cannot listen on 127.0.0.1:{port}" in taken[1]
    assert foreign[0] == 1
    assert "thesis.txt" in foreign[1]
    assert recount[0] == 1
    assert "offsets.topic.num.partitions is 3" in recount[1]
    assert sorted(path.name for path in (tmp_path / "foreign").iterdir()) == ["thesis.txt"]


def refused_start(*pairs: str) -> tuple[int, str]:
    """The exit code, and standard error, which must be one line."""
    with child(*pairs) as process:
        _, said = process.communicate(timeout=PATIENCE_S * pace())
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return process.returncode, said
