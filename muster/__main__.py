"""`python -m muster`: the command, also where no script is installed."""

import sys

from muster.coordinator.cli.main import main

sys.exit(main())
