"""How `make docs` builds: nitpicky, warnings are errors, examples are run."""

from importlib.metadata import version as installed_version

project = "rlvr-probe"
author = "The rlvr-probe authors"
release = version = installed_version("rlvr-probe")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"rlvr-probe {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The build needs no network, so no inventory says where the standard library is documented.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(abc|collections|contextlib|contextvars|dataclasses|enum|os|pathlib|types|typing)\..*",
    ),
]
