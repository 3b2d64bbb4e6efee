"""A real ZooKeeper for development and tests: one server, or an ensemble of three, in one folder on this machine.

Two of three servers make a quorum: an ensemble survives the loss of any one, and stands still without two.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.server import HOST, POLL_S, ServerPorts, ServerTuning, ZooKeeperServer, free_port

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


class LocalEnsemble:
    """One or three servers below `folder`, which remembers their ports once they have started.

    Build it with `open_or_create_ensemble` or `find_ensemble`.
    """

    def __init__(self, folder: Path, ports: Sequence[ServerPorts], tuning: ServerTuning) -> None:
        self.folder = folder
        self._ports = tuple(ports)
        self.servers = tuple(
            ZooKeeperServer(folder / f"server-{number}", number, ports, tuning) for number in range(1, len(ports) + 1)
        )

    @property
    def connect(self) -> str:
        """The connect string: HOST:PORT of every server."""
        return ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def start(self, on_progress: Callable[[str], None] = lambda line: None) -> None:
        """Start what does not run, and return once all serve. Raises JavaNotFound, ZooKeeperError, with all stopped.

        A folder whose first start failed holds no ensemble: it may be started again otherwise.
        """
        waiting = [server for server in self.servers if server.pid is None]
        description = self.folder / DESCRIPTION
        first = not description.exists()
        try:
            if first:
                self._describe(description)
            for server in waiting:
                server.launch()
            self._await(list(self.servers), on_progress)
        except BaseException:
            for server in waiting:
                server.stop()
            if first:
                description.unlink(missing_ok=True)
            raise

    def _describe(self, description: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        description.write_text(json.dumps({"servers": [each._asdict() for each in self._ports]}, indent=2) + "\n")

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


def open_or_create_ensemble(
    folder: Path, nodes: int | None = None, port: int | None = None, tuning: ServerTuning | None = None
) -> LocalEnsemble:
    """The ensemble that the folder holds, or a new one for it, of `nodes` servers (None: 1) from `port` on.

    Without a port a new one takes free ones. Raises ZooKeeperError when the folder holds one of other numbers.
    """
    if nodes not in (None, *SIZES):
        raise ZooKeeperError(
            f"an ensemble of {nodes} servers is not offered; expected 1, or 3 for one that survives a loss"
        )
    if (folder / DESCRIPTION).exists():
        return known_ensemble(folder, nodes, port, tuning or ServerTuning())
    clients = [free_port() if port is None else port + n for n in range(nodes or 1)]
    ports = [
        ServerPorts(client, free_port(), free_port()) if len(clients) > 1 else ServerPorts(client) for client in clients
    ]
    return LocalEnsemble(folder.resolve(), ports, tuning or ServerTuning())


def find_ensemble(folder: Path, tuning: ServerTuning | None = None) -> LocalEnsemble:
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
    return LocalEnsemble(folder.resolve(), ports, tuning or ServerTuning())


def known_ensemble(folder: Path, nodes: int | None, port: int | None, tuning: ServerTuning) -> LocalEnsemble:
    ensemble = find_ensemble(folder, tuning)
    has, first = len(ensemble.servers), ensemble.servers[0].port
    if nodes not in (None, has) or port not in (None, first):
        raise ZooKeeperError(
            f"{folder} holds {has} server(s) from port {first} on, not {nodes or has} from port {port or first} on; "
            "start it again as it is, without --nodes and --port, or choose another folder"
        )
    return ensemble


def read_ports(body: Mapping[str, int]) -> ServerPorts:
    return ServerPorts(int(body["client"]), int(body["peer"]), int(body["election"]))
