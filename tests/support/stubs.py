"""gRPC stubs that only tests use: generated from proto/ when one is first imported from here.

>>> from tests.support.stubs import BrokerStub
>>> BrokerStub.__module__
'muster.storage.rpc.v1.broker_service_pb2_grpc'

They are kept below build/, in a folder named after the contracts' content: a changed contract is generated again.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
SERVICES = sorted((ROOT / "proto").rglob("*_service.proto"))


def generated_folder() -> Path:
    """Where today's stubs are. Processes that generate them at the same time do not disturb each other."""
    content = hashlib.sha256(b"".join(path.read_bytes() for path in SERVICES)).hexdigest()[:16]
    folder = ROOT / "build" / "stubs" / content
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", f"--grpc_python_out={fresh}"]
    subprocess.run([*command, *(str(path.relative_to(ROOT)) for path in SERVICES)], cwd=ROOT, check=True)
    try:
        os.rename(fresh, folder)
    except OSError:  # Another process was faster.
        shutil.rmtree(fresh)
    return folder


@cache
def stub_modules() -> tuple[ModuleType, ...]:
    loaded = []
    for path in sorted(generated_folder().rglob("*_pb2_grpc.py")):
        name = ".".join(path.relative_to(generated_folder()).with_suffix("").parts)
        if (module := sys.modules.get(name)) is None:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        loaded.append(module)
    return tuple(loaded)


def __getattr__(name: str) -> Any:
    for module in () if name.startswith("_") else stub_modules():
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
