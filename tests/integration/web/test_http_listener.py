"""A node's HTTP listener: where it is, that it answers while the node does, and that it goes with it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from muster.coordinator.config import SettingsError, listeners, load_settings
from muster.coordinator.server.grpc.listener import AddressTaken
from muster.coordinator.server.listeners.http_listener import NodeHttpListener
from muster.coordinator.server.node.node import CoordinatorNode, make_http_listener
from tests.support.grpc_node import serving
from tests.support.grpc_node import settings as settings_of
from tests.support.node import running_node


def url(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}"


def test_the_line_that_says_that_a_node_is_there_names_its_http_listener(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", {"http.listeners": "127.0.0.1:0"}) as node:
        assert f"http={node.http}" in (tmp_path / "data.log").read_text()


def test_probes_and_facts_of_a_node(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, http_listeners="127.0.0.1:0") as node:
            assert node.http_bound is not None
            async with httpx.AsyncClient(base_url=url(node.http_bound)) as client:
                for path in ("/healthz", "/readyz", "/startupz"):
                    assert (await client.get(path)).status_code == 200
                [facts] = (await client.get("/api/v1/nodes")).json()
        assert facts["address"] == f"127.0.0.1:{node.bound.port}"
        assert facts["http_address"] == f"127.0.0.1:{node.http_bound.port}"
        assert facts["shards"] == 4
        with pytest.raises(httpx.ConnectError):
            await httpx.AsyncClient().get(url(node.http_bound))

    asyncio.run(run())


def test_an_act_is_told_in_one_line_with_its_door_and_reason(tmp_path: Path) -> None:
    async def run() -> list[dict[str, object]]:
        async with serving(tmp_path, http_listeners="127.0.0.1:0") as node:
            assert node.http_bound is not None
            async with httpx.AsyncClient(base_url=f"{url(node.http_bound)}/api/v1") as client:
                token = (await client.get("/token")).json()["token"]
                body = {"set": {"assignor.options": {"seed": 1}}, "dry_run": False, "reason": "a try"}
                with capture_logs() as logs:
                    answer = await client.post("/groups/g/settings", json=body, headers={"x-muster-token": token})
                assert answer.status_code == 200, answer.text
                return [dict(line) for line in logs if "admin" in line["event"]]

    [line] = asyncio.run(run())
    assert (line["action"], line["of"], line["by"]) == ("AlterGroupSettings", "g", "127.0.0.1")
    assert (line["door"], line["reason"], line["refused"]) == ("http", "a try", 0)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "a", http_listeners="127.0.0.1:0") as node:
            assert node.http_bound is not None
            with pytest.raises(AddressTaken, match=r"another process listens there.*'http\.listeners'"):
                async with serving(tmp_path / "b", http_listeners=f"127.0.0.1:{node.http_bound.port}"):
                    pass

    asyncio.run(run())


def test_a_node_process_announces_it_and_ends_by_a_signal(tmp_path: Path) -> None:
    with running_node(tmp_path, {"http.listeners": "127.0.0.1:0"}) as node:
        assert httpx.get(f"http://{node.http}/readyz").json() == {"status": "ready"}
        assert node.stop() == 0


def test_a_node_without_it_imports_nothing_of_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from tests.support.grpc_node import serving\n"
        "async def run():\n"
        "    async with serving(pathlib.Path(sys.argv[1])): pass\n"
        "asyncio.run(run())\n"
        "web = ('starlette', 'uvicorn', 'jinja2', 'prometheus_client')\n"
        "rooms = 'metrics history scaler tracing doctor'.split()\n"
        "ours = ('muster.coordinator.web', *('muster.coordinator.observability.' + room for room in rooms))\n"
        "print([name for name in sys.modules if name in web or name.startswith(ours)])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_who_asks_for_nothing_is_served_on_loopback() -> None:
    settings = load_settings(None, {})
    assert settings.http_address == ("127.0.0.1", 9291)
    assert settings.http_by_default
    assert load_settings(None, {"http.listeners": ""}).http_address is None


def test_the_default_gives_way_where_its_port_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serving(tmp_path / "a", http_listeners="127.0.0.1:0") as first:
            assert first.http_bound is not None
            taken = f"127.0.0.1:{first.http_bound.port}"
            monkeypatch.setattr(listeners.HttpSettings, "http_by_default", True)
            second = CoordinatorNode(settings_of(tmp_path / "b", http_listeners=taken))
            with capture_logs() as lines:
                await second.start()
            assert second.http_bound is None
            assert (second.measuring, second.history, second.changes) == (None, None, None), "nobody can look at it"
            told = [line["why"] for line in lines if line["event"] == "no HTTP listener"]
            assert len(told) == 1
            assert "another process listens there" in told[0]
            await second.stop()

    asyncio.run(run())


def test_the_default_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    """By name on the command line, as any other; a file that spells the defaults out, as the one that we ship, asks
    for nothing."""
    shipped = Path(__file__).parents[3] / "deploy/coordinator.properties"
    assert load_settings(shipped, {}).http_by_default
    asked = load_settings(shipped, {"http.listeners": listeners.DEFAULT_HTTP_ADDRESS, "log.dirs": str(tmp_path)})
    assert not asked.http_by_default

    async def run() -> None:
        door = NodeHttpListener(asked.model_copy(update={"http_listeners": f"127.0.0.1:{await taken_port()}"}))
        with pytest.raises(AddressTaken, match=r"'http\.listeners'"):
            door.bind()

    async def taken_port() -> int:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    asyncio.run(run())


def test_a_scaler_is_served_where_the_default_gave_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serving(tmp_path / "a", http_listeners="127.0.0.1:0") as first:
            assert first.http_bound is not None
            taken = f"127.0.0.1:{first.http_bound.port}"
            monkeypatch.setattr(listeners.HttpSettings, "http_by_default", True)
            second = CoordinatorNode(settings_of(tmp_path / "b", http_listeners=taken, scaler_enable=True))
            await second.start()
            assert (second.measuring, second.history is not None) == (None, True)
            await second.stop()

    asyncio.run(run())


def test_a_node_without_the_extra_has_no_listener_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "missing_web_packages", lambda: ("starlette",))
    assert load_settings(None, {}).http_address is None
    assert not load_settings(None, {}).observes
    with capture_logs() as lines:
        assert make_http_listener(load_settings(None, {})) is None
        assert make_http_listener(load_settings(None, {"http.listeners": ""})) is None
    assert [line["event"] for line in lines] == ["no HTTP listener"]
    with pytest.raises(SettingsError, match=r"starlette is not installed.*muster-groups\[web\]"):
        load_settings(None, {"http.listeners": "127.0.0.1:9292"})


@pytest.mark.parametrize("address", ["0.0.0.0:9291", "10.0.0.1:9291", "muster.example:9291", "[::]:0"])
def test_only_loopback_is_served_unless_that_is_wanted_by_name(address: str) -> None:
    with pytest.raises(SettingsError, match=r"http\.insecure=true"):
        load_settings(None, {"http.listeners": address})
    assert load_settings(None, {"http.listeners": address, "http.insecure": "true"}).http_address is not None


def test_what_does_not_fit_together_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("node.id=1\nhttp.listeners=0.0.0.0:9291\n")
    with pytest.raises(SettingsError, match=r"node\.properties:2: http\.listeners is 0\.0\.0\.0.*http\.insecure"):
        load_settings(file)
    with pytest.raises(SettingsError, match=r"^--set: otel\.endpoint is 'x'; expected http://HOST:PORT"):
        load_settings(None, {"otel.exporter": "otlp", "otel.endpoint": "x"})


@pytest.mark.parametrize("names", ["http://muster.example/", "*", "a b", "muster.example:9291", "ok.example,-x"])
def test_what_is_no_name_of_a_host_is_said(names: str) -> None:
    """A name with a port would match nothing, and nobody would know why."""
    with pytest.raises(SettingsError, match=r"--set: http\.hosts is .*expected names of hosts.*muster\.example\.org"):
        load_settings(None, {"http.hosts": names})
    assert "muster.example" in load_settings(None, {"http.hosts": " Muster.Example., b"}).http_host_names
