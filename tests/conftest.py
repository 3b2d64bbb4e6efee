"""Options shared by every test."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A gate must give the same answer twice: examples are drawn from a fixed seed, and no example is timed on a shared
# machine. `make search` draws at random instead and digs deeper; what it finds becomes an `@example`.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


SPARK = Path(__file__).parent / "integration" / "spark"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the real traces back into tests/scripts")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What stays together when processes share the tests out: each file, and all that needs a Spark session."""
    for item in items:
        needs_spark = SPARK in item.path.parents or "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if needs_spark else item.path.stem))
