"""The command line: `trio-agents`, also `python -m trio_agents`."""

from ._program import main as main
