"""The concrete agent: factory, driver, steps, tool calls. Only the runtime names it; everybody else knows `agent`."""

from ._factory import AgentLoop as AgentLoop
