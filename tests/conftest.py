"""Options shared by every test."""

import os

import pytest
from hypothesis import settings

# A gate must give the same answer twice: examples are drawn from a fixed seed, and no example is timed on a shared
# machine. `make search` draws at random instead and digs deeper; what it finds becomes an `@example`.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the real traces back into tests/scripts")
