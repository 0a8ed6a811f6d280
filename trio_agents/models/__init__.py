"""Models: the seam between agents and providers, and the adapters that ship with the package."""

from __future__ import annotations

from .._public import publish as _publish
from ._contract import ModelAdapter as ModelAdapter, ModelInfo as ModelInfo, ModelRequest as ModelRequest
from ._registry import ModelRegistry as ModelRegistry
from ._reply import (
    Call as Call,
    Gate as Gate,
    Hang as Hang,
    Raise as Raise,
    Reply as Reply,
    Sleep as Sleep,
    Stubborn as Stubborn,
)
from .anthropic import Anthropic as Anthropic
from .demo import DemoModel as DemoModel
from .openai import OpenAIChat as OpenAIChat
from .openai_responses import OpenAIResponses as OpenAIResponses
from .replay import (
    RecordedAttempt as RecordedAttempt,
    ReplayModel as ReplayModel,
    recorded_attempts as recorded_attempts,
)
from .scripted import ScriptedModel as ScriptedModel

_publish(__name__, globals())
