"""System prompts: sections, variables, and how they become one text."""

from __future__ import annotations

from ._assembly import Section as Section, Variable as Variable, Variables as Variables, assemble as assemble

for _public in (Section, Variable, assemble):
    _public.__module__ = __name__
del _public
