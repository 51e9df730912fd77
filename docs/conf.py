"""How `make docs` builds: nitpicky, warnings are errors, examples are run."""

import re
from importlib.metadata import version as installed_version
from typing import Any

project = "rlvr-probe"
author = project_copyright = "The rlvr-probe authors"
release = version = installed_version("rlvr-probe")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "examples"]
highlight_language = "text"
html_theme = "furo"
html_title = f"rlvr-probe {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The build needs no network, so no inventory says where the standard library is documented.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(abc|argparse|collections|contextlib|contextvars|dataclasses|enum|os|pathlib|types|typing)\..*",
    ),
    # Attributes that a class describes in its own docstring have no entry of their own.
    (r"py:attr", r"folder|frameworks|Trace\.processes"),
    # Type variables.
    (r"py:class", r"rlvr_probe\.(probe\.user_span\._F|adapter\.\w+\._(Own|State))"),
    # What is left of an alias of a type within a type.
    (r"py:class", r"(dict|list\[tuple)\[\w+"),
]


def _as_meant(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking words before a colon or a comma for the type of an attribute."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(": ", " \N{EN DASH} ")
    for index, line in enumerate(lines):
        # An entry for two attributes: ``args, kwargs: both of them``.
        several = re.match(r"( +\w+(?:, \w+)+: )", line)
        if several:
            names = several[1].lstrip()
            lines[index] = line.replace(names, names.rstrip().replace(", ", ",") + " ", 1)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _as_meant, priority=400)
