"""Fuzz one target, guided by coverage: `python -m tests.fuzz connection CORPUS -max_total_time=300`, or `make fuzz`.

What follows the target's name is for libFuzzer. An input that breaks a promise is written beside the corpus; play it
again by giving its file instead of a corpus. Needs atheris (`pip install '.[fuzz]'`).
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    arguments = sys.argv[1:]
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit(
            "atheris is not installed, so there is no coverage to guide the search: pip install '.[fuzz]' "
            f"(it has wheels for some versions of Python only; this is {sys.version.split()[0]}). "
            "'pytest tests/fuzz' runs the same targets without it."
        )
    ours = ["muster.coordinator.kafka", "muster.coordinator.core", "muster.coordinator.replication.io", "storage"]
    ours += ["muster.coordinator.watch", "muster.coordinator.runtime"]
    with atheris.instrument_imports(include=ours):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
        targets = targets | importlib.import_module("tests.fuzz.between").TARGETS
        targets = targets | importlib.import_module("tests.fuzz.watched").TARGETS
        targets = targets | importlib.import_module("tests.fuzz.conversion").TARGETS
        emitting = importlib.import_module("muster.coordinator.kafka.codec.codec")
    # The codec's own code is written at run time, past the import hook.
    compiled = emitting.Emitter.function
    emitting.Emitter.function = lambda self: atheris.instrument_func(compiled(self))
    if not arguments or arguments[0] not in targets:
        sys.exit(f"expected a target ({', '.join(targets)}) and libFuzzer's arguments, not {' '.join(arguments)!r}")
    name, *rest = arguments
    for corpus in (Path(one) for one in rest if not one.startswith("-")):
        if not corpus.exists():
            corpus.mkdir(parents=True)
    atheris.Setup([f"{sys.argv[0]} {name}", *rest], targets[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
