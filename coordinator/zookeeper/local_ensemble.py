"""A real ZooKeeper for development and tests: one server, or an ensemble of three, in one folder on this machine.

Two of three servers make a quorum: an ensemble survives the loss of any one of them and stops without two. The server's
classes come from the jars that pyspark ships; nothing of pyspark is imported. Everything of a server lies in its
folder: `zoo.cfg`, `data/`, `zookeeper.log` and, while it runs, `zookeeper.pid`, so a later process can ask for its
status and stop it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from muster.coordinator.java_runtime import find_java
from muster.coordinator.zookeeper.errors import ExtraMissing, ZooKeeperError

# ZooKeeper's classes, from pyspark's jars
# ----------------------------------------

SERVER_JAR = ("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-")
LOGGING_JARS = ("log4j-slf4j2-impl-", "log4j-api-", "log4j-core-")


def server_class_path(*, logging: bool) -> str:
    """What to give to `java -cp`. Raises ExtraMissing without pyspark, ZooKeeperError when its jars are others."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ExtraMissing("pyspark, whose jars hold the ZooKeeper server,")
    folder = Path(spec.origin).parent / "jars"
    wanted = SERVER_JAR + LOGGING_JARS if logging else SERVER_JAR
    return ":".join(str(find_jar(folder, prefix)) for prefix in wanted)


def find_jar(folder: Path, prefix: str) -> Path:
    found = sorted(folder.glob(f"{prefix}*.jar"))
    if not found:
        raise ZooKeeperError(
            f"{folder} has no {prefix}*.jar; expected the jars of pyspark 4.2 or later; "
            "install it with: pip install 'muster-groups[zookeeper]'"
        )
    return found[-1]


# One server process
# ------------------

HOST = "127.0.0.1"
STANDALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
QUORUM = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

POLL_S = 0.05
ANSWER_TIMEOUT_S = 1.0
STOP_PATIENCE_S = 10.0
MAX_ANSWER_BYTES = 64 << 10
LOG_TAIL_BYTES = 2_000

LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class ServerPorts(NamedTuple):
    """Where a server answers clients, its peers, and their elections. The last two are 0 for a server alone."""

    client: int
    peer: int = 0
    election: int = 0


@dataclass(frozen=True, slots=True)
class ServerTuning:
    """How the servers run. Sessions may last 2 to 20 ticks."""

    tick_ms: int = 500
    heap_mb: int = 128
    logs: bool = True
    """Whether `zookeeper.log` is written; without, a server starts half a second sooner."""
    durable: bool = True
    """Whether each write is forced to the disk before it is acknowledged, as a ZooKeeper that matters must."""
    tied: bool = False
    """Whether the servers end with the process that started them, however it ends."""


class ZooKeeperServer:
    """Server `number` of the ensemble whose members' ports are `ports` (number - 1 is its own place)."""

    def __init__(self, folder: Path, number: int, ports: Sequence[ServerPorts], tuning: ServerTuning) -> None:
        self.folder = folder
        self.number = number
        self._ports = tuple(ports)
        self._tuning = tuning
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port for clients."""
        return self._ports[self.number - 1].client

    @property
    def pid(self) -> int | None:
        """The process that runs from this folder, whoever started it; None when there is none."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if str(self._config_file) in command_line(pid) else None

    def launch(self) -> None:
        """Start the process; it is ready once `mode` says so. Raises JavaNotFound, ExtraMissing, ZooKeeperError."""
        if (pid := self.pid) is not None:
            raise ZooKeeperError(f"server {self.number} of {self.folder.parent} runs already, as process {pid}")
        refuse_if_taken(self.port)
        self._write_files()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=not self._tuning.tied,
            )
        self._pid_file.write_text(str(self._process.pid))
        if self._tuning.tied:
            self._lifeline = start_watchdog(self._process.pid)

    def mode(self) -> str:
        """What the server calls itself: standalone, leader or follower; empty while it does not serve."""
        if self.pid is None:
            return ""  # whoever answers at its port is somebody else
        match = re.search(r"^Mode: (\w+)", self.send_word("srvr"), re.MULTILINE)
        return match[1] if match else ""

    def send_word(self, word: str) -> str:
        """The answer to one of ZooKeeper's four-letter words; empty when nobody answers."""
        try:
            with socket.create_connection((HOST, self.port), ANSWER_TIMEOUT_S) as peer:
                peer.sendall(word.encode())
                answer = b""
                while len(answer) < MAX_ANSWER_BYTES and (more := peer.recv(8192)):
                    answer += more
        except OSError:
            return ""
        return answer.decode(errors="replace")

    def failed(self) -> str:
        """Why the process that was launched here has ended; empty while it runs."""
        if self._process is None or self._process.poll() is None:
            return ""
        tail = self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return f"server {self.number} ended with code {self._process.returncode}; {self.log_file} says: {tail}"

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> bool:
        """End it in an orderly way; whether it ran."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop its clock: it neither serves nor dies, until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def log_file(self) -> Path:
        return self.folder / "zookeeper.log"

    @property
    def _config_file(self) -> Path:
        return self.folder / "zoo.cfg"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "zookeeper.pid"

    def _command(self) -> list[str]:
        tuning = self._tuning
        flags = [f"-Xmx{tuning.heap_mb}m", "-Xss256k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
        flags += ["-Dzookeeper.preAllocSize=4096", f"-Dzookeeper.forceSync={'yes' if tuning.durable else 'no'}"]
        if tuning.logs:
            flags.append(f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}")
        main = QUORUM if len(self._ports) > 1 else STANDALONE
        classes = server_class_path(logging=tuning.logs)
        return [str(find_java().executable), *flags, "-cp", classes, main, str(self._config_file)]

    def _write_files(self) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self.number))
        self._config_file.write_text(server_configuration(data, self.port, self._ports, self._tuning.tick_ms))
        (self.folder / "log4j2.properties").write_text(LOGGING)

    def _signal(self, how: signal.Signals) -> bool:
        pid = self.pid
        if pid is None:
            return False
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return False
        return True

    def _end(self, how: signal.Signals) -> bool:
        """Signal it, wait until it is gone; one that does not heed SIGTERM in time is killed."""
        pid = self.pid
        if self._lifeline is not None:
            self._lifeline.kill()
            self._lifeline.wait()
            self._lifeline = None
        ran = self._signal(how)
        if ran and pid is not None and not self._gone(pid):
            self._signal(signal.SIGKILL)
            self._gone(pid)
        self._pid_file.unlink(missing_ok=True)
        self._process = None
        return ran

    def _gone(self, pid: int) -> bool:
        """Wait for the process to end; whether it did in time."""
        if self._process is not None and self._process.pid == pid:
            try:
                self._process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                return False
            return True
        return wait_until(STOP_PATIENCE_S, lambda: self.pid is None)


def server_configuration(data: Path, port: int, ports: Sequence[ServerPorts], tick_ms: int) -> str:
    """The server's `zoo.cfg`; every server listens on loopback only."""
    lines = [
        f"tickTime={tick_ms}",
        f"dataDir={data}",
        f"clientPort={port}",
        f"clientPortAddress={HOST}",
        "admin.enableServer=false",
        "4lw.commands.whitelist=*",
        "maxClientCnxns=0",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=24",
    ]
    if len(ports) > 1:
        lines += ["initLimit=20", "syncLimit=10", "standaloneEnabled=false"]
        lines += [f"server.{n}={HOST}:{each.peer}:{each.election}" for n, each in enumerate(ports, start=1)]
    return "\n".join(lines) + "\n"


def start_watchdog(pid: int) -> subprocess.Popen[bytes]:
    """A shell that waits for our end of its pipe to close, as it does when we die in any way, and then ends `pid`."""
    script = 'read -r _; kill -9 "$1" 2>/dev/null'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(pid)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )


def command_line(pid: int) -> str:
    """The command line of a running process; empty when there is no such process."""
    proc = Path("/proc")
    if (proc / "self").exists():
        try:
            return (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def refuse_if_taken(port: int) -> None:
    """Raises ZooKeeperError when somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ZooKeeperError(
                f"port {port} of {HOST} cannot be taken ({error.strerror}); "
                "stop whoever listens there (muster zookeeper stop), or choose another with --port"
            ) from error


def wait_until(seconds: float, true: Callable[[], bool]) -> bool:
    """Whether it became true in that time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


# One server or three
# -------------------

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
