"""`python -m muster.coordinator.cli`: the same as `muster`, also where no script is installed."""

import sys

from muster.coordinator.cli.main import main

sys.exit(main())
