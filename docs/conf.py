"""Sphinx configuration. Builds without a network: names of other projects are not linked."""

from __future__ import annotations

import importlib.metadata

project = "trio_agents"
author = "trio_agents contributors"
copyright = "trio_agents contributors"
release = importlib.metadata.version("trio-agents")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib_trio"]
exclude_patterns = ["_build", "news"]
html_theme = "furo"
html_title = "trio_agents"

nitpicky = True
# Whose names we use but cannot look up without a network. Ours must all resolve.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(trio|outcome|attrs?|cattrs|msgspec|httpx2|pytest|hypothesis|typing|typing_extensions)(\..*)?",
    ),
    (r"py:.*", r"(collections|contextlib|datetime|enum|os|pathlib|random|re|types|uuid)(\..*)?"),
    (
        r"py:(class|exc|obj|data)",
        r"(None|Any|bool|bytes|dict|float|frozenset|int|list|object|set|str|tuple|type)",
    ),
    (r"py:(class|exc)", r"[A-Z]\w*(Error|Exception|ExceptionGroup)"),  # built-in ones; ours have a module
    (r"py:(class|obj)", r"(\w+\.)*([TPR]|Ts|U|PayloadT)|(\w+\.)*\w+_(co|contra)"),  # type variables
    (r"py:.*", r"trio_agents\.\w+\._\w+\..*"),  # private: named in a signature, described by its methods
    (r"py:.*", r"builtins\..*"),
    (r"py:class", r"trio_agents\.tools\.Tool"),  # with its parameters it is named by its package
    (r"py:class", r"[A-Z]\w+"),  # names that a module imports for type checkers only
]

suppress_warnings = ["ref.python"]  # attributes of one name in several classes are not references

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
