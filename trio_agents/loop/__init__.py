"""The concrete agent: factory, driver, steps, tool calls. Only the runtime names it; everybody else knows `agent`."""

from .._public import publish as _publish
from ._factory import AgentLoop as AgentLoop

_publish(__name__, globals())
