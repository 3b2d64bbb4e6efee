"""The committed gRPC code is what the protos say, and the protos keep their conventions."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOS = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto"))
SERVICES = [path for path in PROTOS if path.name.endswith("_service.proto")]


def generate(target: Path) -> None:
    """Run the same two commands as `make proto`."""
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto"]
    messages = [*protoc, f"--python_out={target}", f"--pyi_out={target}", *map(str, prefixed(PROTOS))]
    services = [*protoc, f"--grpc_python_out={target}", *map(str, prefixed(SERVICES))]
    for command in (messages, services):
        subprocess.run(command, cwd=ROOT, check=True)


def prefixed(paths: list[Path]) -> list[Path]:
    return [Path("proto") / path for path in paths]


def test_the_committed_code_is_current(tmp_path: Path) -> None:
    generate(tmp_path)
    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2*.py*")}
    committed = {
        path.relative_to(ROOT): path.read_text()
        for package in ("coordinator", "storage")
        for path in (ROOT / "muster" / package / "rpc" / "v1").glob("*_pb2*.py*")
    }
    assert fresh.keys() == committed.keys(), "run `make proto` and commit the result"
    stale = [str(path) for path, text in fresh.items() if committed[path] != text]
    assert not stale, f"run `make proto`: {', '.join(stale)} differ from their protos"


@pytest.mark.parametrize("path", PROTOS, ids=str)
def test_package_and_folder_agree(path: Path) -> None:
    package = re.search(r"^package ([\w.]+);", (ROOT / "proto" / path).read_text(), re.MULTILINE)
    assert package is not None
    # Names on the wire do not carry the name of our Python package.
    assert f"muster.{package.group(1)}" == ".".join(path.parent.parts)


@pytest.mark.parametrize("path", PROTOS, ids=str)
def test_go_is_told_where_its_package_lies(path: Path) -> None:
    assert f'option go_package = "{path.parent.as_posix()};' in (ROOT / "proto" / path).read_text()


@pytest.mark.parametrize("path", PROTOS, ids=str)
def test_the_format_of_opaque_bytes_is_told(path: Path) -> None:
    """`bytes` says nothing: the line above (or that of the field before it, for pairs) says what is in them."""
    lines = (ROOT / "proto" / path).read_text().splitlines()
    untold = [
        f"{path}:{at + 1}: {line.strip()}"
        for at, line in enumerate(lines)
        if re.match(r" +bytes ", line) and not re.match(r" +(//|bytes )", lines[at - 1])
    ]
    assert not untold


@pytest.mark.parametrize("path", SERVICES, ids=str)
def test_every_method_has_a_request_and_a_response_of_its_own(path: Path) -> None:
    methods = re.findall(
        r"rpc (\w+)\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)", (ROOT / "proto" / path).read_text()
    )
    assert methods
    for name, request, response in methods:
        assert (request, response) == (f"{name}Request", f"{name}Response")
