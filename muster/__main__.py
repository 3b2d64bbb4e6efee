"""`python -m muster`: the command, also where no script is installed."""

import sys

from muster.cli.main import main

sys.exit(main())
