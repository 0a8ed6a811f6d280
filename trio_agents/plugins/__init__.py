"""Optional behaviour, each a plugin on hooks alone: called once with a scope, in which it registers."""

from collections.abc import Callable
from typing import Final, TypeAlias

from .._public import publish as _publish
from ..agent import Scope
from ._fallback import Fallback as Fallback
from ._reconstruction import ReconstructionCheck as ReconstructionCheck
from ._retry import RetryPolicy as RetryPolicy

Plugin: TypeAlias = Callable[[Scope], object]
"""Optional behaviour: called once with the root scope, in which it registers its listeners and tools."""

DEFAULT_PLUGINS: Final[tuple[Plugin, ...]] = (RetryPolicy(),)
"""What a runtime comes with unless it is told otherwise."""

_publish(__name__, globals())
