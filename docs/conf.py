"""Sphinx: `sphinx-build -W -n docs OUT`. Every warning is an error, so every link is checked."""

project = "modelmill"
extensions = ["myst_parser"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "samples"]
html_theme = "furo"
html_title = "modelmill"
nitpicky = True
smartquotes = False  # curly quotes and long dashes in copied commands do not work
