"""The command line: `trio-agents`, also `python -m trio_agents`."""
