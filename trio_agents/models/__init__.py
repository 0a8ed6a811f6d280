"""Models: the seam between agents and providers, and the adapters that ship with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._public import lazily as _lazily, publish as _publish
from ._contract import ModelAdapter as ModelAdapter, ModelInfo as ModelInfo, ModelRequest as ModelRequest
from ._limits import Limited as Limited, Limits as Limits
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
from .scripted import ScriptedModel as ScriptedModel

if TYPE_CHECKING:
    from .anthropic import Anthropic as Anthropic
    from .demo import DemoModel as DemoModel
    from .local import LocalModel as LocalModel
    from .openai import OpenAIChat as OpenAIChat
    from .openai_responses import OpenAIResponses as OpenAIResponses
    from .replay import (
        RecordedAttempt as RecordedAttempt,
        ReplayModel as ReplayModel,
        recorded_attempts as recorded_attempts,
    )

_LATER: Final = {
    "Anthropic": "anthropic",
    "DemoModel": "demo",
    "LocalModel": "local",
    "OpenAIChat": "openai",
    "OpenAIResponses": "openai_responses",
    "RecordedAttempt": "replay",
    "ReplayModel": "replay",
    "recorded_attempts": "replay",
}
"""What few programs use all of: imported when it is first asked for."""

_later = _lazily(__name__, _LATER)


def __getattr__(name: str) -> object:
    return _later(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


_publish(__name__, globals())
