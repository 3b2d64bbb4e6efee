"""`python -m muster.cli`: the same as `muster`, also where no script is installed."""

import sys

from muster.cli.main import main

sys.exit(main())
