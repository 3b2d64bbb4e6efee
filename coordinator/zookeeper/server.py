"""One real ZooKeeper server as a process: its files, its start, its end, and how it stands.

Everything lies in one folder: `zoo.cfg`, `data/`, `zookeeper.log` and, while it runs, `zookeeper.pid`. Whoever finds
the folder later can ask for its status and stop it.
"""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from muster.coordinator.java_runtime import find_java
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.jars import server_class_path

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
        match = re.search(r"^Mode: (\w+)", self.ask("srvr"), re.MULTILINE)
        return match[1] if match else ""

    def ask(self, word: str) -> str:
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
