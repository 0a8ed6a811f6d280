"""`python -m trio_agents` is `trio-agents`."""

import sys

from .cli import main

sys.exit(main())
