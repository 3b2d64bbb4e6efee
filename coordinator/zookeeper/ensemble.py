"""A real ZooKeeper for development and tests: one server, or an ensemble of three, in one folder on this machine.

Two of three servers make a quorum: an ensemble survives the loss of any one, and stands still without two.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.zookeeper.errors import ZooKeeperError
from coordinator.zookeeper.server import HOST, POLL_S, Ports, Tuning, ZooKeeperServer, free_port

SIZES = (1, 3)
DEFAULT_PORT = 2181
START_PATIENCE_S = 60.0
DESCRIPTION = "ensemble.json"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """`mode` is standalone, leader or follower; empty while it does not serve. `pid` None: it does not run."""

    number: int
    address: str
    pid: int | None
    mode: str


class Ensemble:
    """One or three servers below `folder`, which remembers their ports. Build it with `make` or `find`."""

    def __init__(self, folder: Path, ports: Sequence[Ports], tuning: Tuning) -> None:
        self.folder = folder
        self.servers = tuple(
            ZooKeeperServer(folder / f"server-{number}", number, ports, tuning) for number in range(1, len(ports) + 1)
        )

    @property
    def connect(self) -> str:
        """The connect string: HOST:PORT of every server."""
        return ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def start(self, on_progress: Callable[[str], None] = lambda line: None) -> None:
        """Start what does not run, and return once all serve. Raises JavaNotFound, ZooKeeperError, with all stopped."""
        waiting = [server for server in self.servers if server.pid is None]
        try:
            for server in waiting:
                server.launch()
            self._await(list(self.servers), on_progress)
        except BaseException:
            for server in waiting:
                server.stop()
            raise

    def stop(self) -> int:
        """Stop all; how many ran. Followers first, so that nobody is elected for a moment."""
        return sum(server.stop() for server in sorted(self.servers, key=lambda server: server.mode() == "leader"))

    def kill(self, number: int) -> None:
        """End one server as a power cut would."""
        self.server(number).kill()

    def restart(self, number: int) -> None:
        """Start one that was killed, and return once it serves."""
        self.server(number).launch()
        self._await([self.server(number)], lambda line: None)

    def server(self, number: int) -> ZooKeeperServer:
        return self.servers[number - 1]

    def leader(self) -> int:
        """The number of the server that leads (of the only one). Raises ZooKeeperError when none does."""
        for server in self.servers:
            if server.mode() in ("leader", "standalone"):
                return server.number
        raise ZooKeeperError(f"no server of {self.connect} leads")

    def status(self) -> list[ServerStatus]:
        return [ServerStatus(s.number, f"{HOST}:{s.port}", s.pid, s.mode()) for s in self.servers]

    def _await(self, servers: list[ZooKeeperServer], on_progress: Callable[[str], None]) -> None:
        deadline = time.monotonic() + START_PATIENCE_S
        waiting = list(servers)
        while waiting:
            for server in list(waiting):
                if why := server.failed():
                    raise ZooKeeperError(why)
                if mode := server.mode():
                    waiting.remove(server)
                    on_progress(f"server {server.number} at {HOST}:{server.port}: {mode}")
            if waiting and time.monotonic() > deadline:
                late = ", ".join(f"{s.number} ({s.log_file})" for s in waiting)
                raise ZooKeeperError(f"not ready after {START_PATIENCE_S:.0f} s: server {late}; look into the log")
            time.sleep(POLL_S if waiting else 0)


def make(folder: Path, nodes: int = 1, port: int | None = None, tuning: Tuning | None = None) -> Ensemble:
    """The ensemble of this folder, described there on first use. `port` is the first server's; None takes free ones.

    Raises ZooKeeperError when the folder holds another ensemble.
    """
    if nodes not in SIZES:
        raise ZooKeeperError(
            f"an ensemble of {nodes} servers is not offered; expected 1, or 3 for one that survives a loss"
        )
    if (folder / DESCRIPTION).exists() and any(folder.glob("server-*/zoo.cfg")):
        return known(folder, nodes, port, tuning or Tuning())
    folder.mkdir(parents=True, exist_ok=True)
    clients = [free_port() if port is None else port + n for n in range(nodes)]
    ports = [Ports(client, free_port(), free_port()) if nodes > 1 else Ports(client) for client in clients]
    (folder / DESCRIPTION).write_text(json.dumps({"servers": [each._asdict() for each in ports]}, indent=2) + "\n")
    return Ensemble(folder.resolve(), ports, tuning or Tuning())


def find(folder: Path, tuning: Tuning | None = None) -> Ensemble:
    """The ensemble that was made in this folder. Raises ZooKeeperError when there is none."""
    file = folder / DESCRIPTION
    try:
        body = json.loads(file.read_text())
        ports = [read_ports(each) for each in body["servers"]]
    except FileNotFoundError as error:
        raise ZooKeeperError(
            f"{folder} holds no ZooKeeper; expected a folder in which 'muster zookeeper start --data' has made one"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ZooKeeperError(f"{file} cannot be read ({error}); restore it, or start in another folder") from error
    return Ensemble(folder.resolve(), ports, tuning or Tuning())


def known(folder: Path, nodes: int, port: int | None, tuning: Tuning) -> Ensemble:
    ensemble = find(folder, tuning)
    if len(ensemble.servers) != nodes or (port is not None and ensemble.servers[0].port != port):
        raise ZooKeeperError(
            f"{folder} holds {len(ensemble.servers)} server(s) from port {ensemble.servers[0].port} on, not {nodes} "
            f"from {'any' if port is None else port}; start it as it is, or choose another folder"
        )
    return ensemble


def read_ports(body: Mapping[str, int]) -> Ports:
    return Ports(int(body["client"]), int(body["peer"]), int(body["election"]))
