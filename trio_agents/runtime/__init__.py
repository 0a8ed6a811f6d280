"""Composes the rest: the one place that names concrete parts."""

from .._public import publish as _publish
from ._run import run as run
from ._runtime import Runtime as Runtime, open_runtime as open_runtime

_publish(__name__, globals())
