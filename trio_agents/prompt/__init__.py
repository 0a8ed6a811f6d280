"""System prompts: sections, variables, and how they become one text."""

from __future__ import annotations

from .._public import publish as _publish
from ._assembly import Section as Section, Variable as Variable, Variables as Variables, assemble as assemble

_publish(__name__, globals())
