"""The committed gRPC code is what the protos say, and the protos keep their conventions."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import errors_pb2
from muster.storage import errors
from muster.storage.rpc.v1 import broker_service_pb2

ROOT = Path(__file__).parents[2]
PROTOS = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto"))
OURS = [path for path in PROTOS if not path.name.startswith("externalscaler")]
"""Without KEDA's contract, which has its names and conventions from KEDA."""
SERVICES = [path for path in PROTOS if path.name.endswith("_service.proto")]


def generate(target: Path) -> None:
    """Run the same command as `make proto`."""
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto"]
    messages = [*protoc, f"--python_out={target}", f"--pyi_out={target}", *map(str, prefixed(PROTOS))]
    subprocess.run(messages, cwd=ROOT, check=True)


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


@pytest.mark.parametrize("path", OURS, ids=str)
def test_package_and_folder_agree(path: Path) -> None:
    package = re.search(r"^package ([\w.]+);", (ROOT / "proto" / path).read_text(), re.MULTILINE)
    assert package is not None
    # Names on the wire do not carry the name of our Python package.
    assert f"muster.{package.group(1)}" == ".".join(path.parent.parts)


@pytest.mark.parametrize("path", OURS, ids=str)
def test_go_is_told_where_its_package_lies(path: Path) -> None:
    assert f'option go_package = "{path.parent.as_posix()};' in (ROOT / "proto" / path).read_text()


def test_all_contracts_are_generated_for_go_in_one_run(tmp_path: Path) -> None:
    """protoc-gen-go takes import paths only that have a dot or a slash, and of each path one package alone."""
    out = tmp_path / "all.pb"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", f"--descriptor_set_out={out}"]
    subprocess.run([*command, *map(str, prefixed(PROTOS))], cwd=ROOT, check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    assert len(files) == len(PROTOS)
    packages: dict[str, set[tuple[str, str]]] = {}
    for each in files:
        path, _, name = each.options.go_package.partition(";")
        assert re.fullmatch(r"[a-z0-9]+(/[a-z0-9]+)+", path), f"{each.name}: {path} is no import path"
        assert name.isidentifier()
        packages.setdefault(path, set()).add((name, each.package))
    assert all(len(found) == 1 for found in packages.values()), packages
    assert len({name for found in packages.values() for name, _ in found}) == len(packages)


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


@pytest.mark.parametrize("path", [path for path in SERVICES if path in OURS], ids=str)
def test_every_method_has_a_request_and_a_response_of_its_own(path: Path) -> None:
    methods = re.findall(
        r"rpc (\w+)\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)", (ROOT / "proto" / path).read_text()
    )
    assert methods
    for name, request, response in methods:
        assert (request, response) == (f"{name}Request", f"{name}Response")


def test_the_scaler_s_contract_is_the_one_that_keda_calls() -> None:
    """Names, numbers and types as in kedacore/keda, pkg/scalers/externalscaler/externalscaler.proto."""
    text = (ROOT / "proto/muster/coordinator/rpc/v1/externalscaler_service.proto").read_text()
    said = " ".join(re.sub(r"//.*", "", text).split())
    assert "package externalscaler;" in said
    for part in (
        "service ExternalScaler { rpc IsActive(ScaledObjectRef) returns (IsActiveResponse) {} "
        "rpc StreamIsActive(ScaledObjectRef) returns (stream IsActiveResponse) {} "
        "rpc GetMetricSpec(ScaledObjectRef) returns (GetMetricSpecResponse) {} "
        "rpc GetMetrics(GetMetricsRequest) returns (GetMetricsResponse) {} }",
        "message ScaledObjectRef { string name = 1; string namespace = 2; map<string, string> scalerMetadata = 3; }",
        "message IsActiveResponse { bool result = 1; }",
        "message GetMetricSpecResponse { repeated MetricSpec metricSpecs = 1; }",
        "message MetricSpec { string metricName = 1; int64 targetSize = 2; double targetSizeFloat = 3; }",
        "message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }",
        "message GetMetricsResponse { repeated MetricValue metricValues = 1; }",
        "message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }",
    ):
        assert part in said


@pytest.mark.parametrize("path", OURS, ids=str)
def test_what_each_value_of_an_enum_means_is_told(path: Path) -> None:
    lines = (ROOT / "proto" / path).read_text().splitlines()
    value = re.compile(r"\s*[A-Z][A-Z0-9_]* = -?\d+;$")
    untold = [line.strip() for above, line in pairwise(lines) if value.match(line) and "//" not in above]
    assert not untold, f"say in a comment above them what these mean: {', '.join(untold)}"


def test_every_refusal_of_the_log_has_a_value_in_its_contract() -> None:
    kinds = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.StorageError)}
    assert {kind.code for kind in kinds} <= set(broker_service_pb2.ErrorCode.values())


def test_the_groups_refusals_are_those_of_their_contract() -> None:
    assert {code.value for code in ErrorCode} == set(errors_pb2.ErrorCode.values())
