"""Tools: what a model may call, and what their results are made of."""

from __future__ import annotations

from .._public import publish as _publish
from ._child import ChildProcess as ChildProcess, ProcessBlock as ProcessBlock, open_process as open_process
from ._context import ToolContext as ToolContext
from ._definition import (
    Arguments as Arguments,
    Effect as Effect,
    Tool as Tool,
    ToolDecorator as ToolDecorator,
    schema_tool as schema_tool,
    tool as tool,
)
from ._process_group import kill_running_commands as kill_running_commands
from ._results import (
    DEFAULT_OUTPUT_LIMIT as DEFAULT_OUTPUT_LIMIT,
    Image as Image,
    ToolReturn as ToolReturn,
    encode_result as encode_result,
    error_result as error_result,
)
from .commands import command_tool as command_tool
from .files import file_tools as file_tools
from .web import fetch_tool as fetch_tool

_publish(__name__, globals())
