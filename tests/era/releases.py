"""Kafka's own programs of 0.8.2 to 1.1, from Maven's jars, as processes: the judges of what is told to clients of old.

`make era` fetches the jars, into build/era, and fails where they cannot be had; elsewhere what is missing is skipped.
"""

import fcntl
import os
import shutil
import signal
import subprocess
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.support.pace import pace

HERE: Final = Path(__file__).parent
JARS: Final = HERE.parents[1] / "build" / "era"
SCALA: Final = {"0.8.2.2": "2.11", "0.9.0.1": "2.11", "0.10.2.2": "2.11", "0.11.0.3": "2.11", "1.1.1": "2.12"}
"""Releases, by which Scala they were built."""
PROGRAM_S: Final = 90
STOP_S: Final = 30
numbers = count()


@cache
def jars_of(release: str) -> Path:
    """Where they are; skips, or fails where they are demanded (MUSTER_ERA)."""
    place = JARS / release
    wanted = os.environ.get("MUSTER_ERA") == "1"
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if not any(place.glob("kafka_*.jar")):
        if not wanted or missing:
            (pytest.fail if wanted else pytest.skip)(
                f"no jars of Kafka {release} in {place.relative_to(HERE.parents[1])}: "
                + (f"{' and '.join(missing)} not installed" if missing else "'make era' fetches them")
            )
        fetch_once(release, place)
    if "java" in missing:
        (pytest.fail if wanted else pytest.skip)("java is not installed")
    return place


def fetch_once(release: str, place: Path) -> None:
    """However many processes run these tests."""
    JARS.mkdir(parents=True, exist_ok=True)
    with (JARS / "fetching").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(place.glob("kafka_*.jar")):
            fetch(release, place)


def fetch(release: str, place: Path) -> None:
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    told = [f"-Dscala={SCALA[release]}", f"-Dkafka={release}", f"-DoutputDirectory={place}"]
    subprocess.run([*command, *told], check=True, timeout=600)


def java_command(release: str, program: str, *arguments: str) -> list[str]:
    """A program of that release, or of ours over its classes. It runs on the Java of today."""
    classpath = f"{jars_of(release)}/*"
    if (HERE / "java" / f"{program}.java").exists():
        classpath += f":{compiled_sources()}"
    small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    logs = f"-Dlog4j.configuration=file:{HERE / 'java' / 'log4j.properties'}"
    return ["java", *small, logs, "-cp", classpath, program, *arguments]


@cache
def compiled_sources() -> Path:
    """Our own programs in `java/`: they know the old classes by reflection alone, so they are compiled once."""
    if shutil.which("javac") is None:
        (pytest.fail if os.environ.get("MUSTER_ERA") == "1" else pytest.skip)("javac is not installed")
    place = JARS / f"classes-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    sources = sorted(map(str, (HERE / "java").glob("*.java")))
    subprocess.run(["javac", "-d", str(place), *sources], check=True, timeout=PROGRAM_S * pace())
    return place


def run_program(release: str, program: str, *arguments: str, said: str = "") -> str:
    """What a program of that release prints until it ends."""
    command = java_command(release, program, *arguments)
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PROGRAM_S * pace(), check=False)
    assert done.returncode == 0, f"{program} of {release} ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


class OldProgram:
    """A program of an old release that runs beside the test. What it prints goes to files in `folder`."""

    def __init__(self, folder: Path, release: str, program: str, *arguments: str) -> None:
        self.release = release
        number = next(numbers)
        self._out = folder / f"program-{number}.out"
        self._log = folder / f"program-{number}.log"
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                java_command(release, program, *arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )

    def lines(self) -> list[str]:
        """The whole lines that it printed so far."""
        return self._out.read_text().split("\n")[:-1]

    def log_tail(self) -> str:
        return f"{self.release}, {self._process.poll()}: {self._log.read_text(errors='replace')[-3000:]}"

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, also of one that is frozen or has ended."""
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> None:
        """SIGTERM: it leaves in order."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_S * pace())
