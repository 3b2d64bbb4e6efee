"""Clients that need another runtime. They are tried by `make interop`; the ordinary run leaves them out."""

import os

collect_ignore_glob = [] if os.environ.get("MUSTER_INTEROP") else ["test_*.py"]
