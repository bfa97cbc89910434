"""How Sphinx builds the site from the pages of docs/: `make docs`.

The pages are Markdown that also reads well without the site. Three things are added while it is built: the tables of
settings (settings_reference.py), links to documents above docs/, and the list of decisions.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from settings_reference import with_settings  # noqa: E402

from leadline import __version__  # noqa: E402

project = "Leadline"
author = "the authors of Leadline"
copyright = "the authors of Leadline, Apache License 2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["site"]
myst_enable_extensions = ["attrs_block", "deflist"]
myst_heading_anchors = 4
highlight_language = "text"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"Leadline {release}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f7a", "color-brand-content": "#0b5f7a"},
    "dark_css_variables": {"color-brand-primary": "#6cc5e0", "color-brand-content": "#6cc5e0"},
}

# The documents above docs/, and the pages that show them.
_ABOVE = {"README.md": "index.md", "CHANGELOG.md": "project/changelog.md", "CONTRIBUTING.md": "project/contributing.md"}
_DECISIONS = "\n```{toctree}\n:hidden:\n:glob:\n\n0*\ntemplate\n```\n"
_UP = re.compile(r"\]\(((?:\.\./)+)([A-Z]+\.md)(#[\w-]+)?\)")


def _with_pages_for_documents(docname: str, text: str) -> str:
    folder = posixpath.dirname(docname)

    def link(match: re.Match[str]) -> str:
        up, name, _ = match.groups()
        is_above = posixpath.normpath(posixpath.join(folder, up)) == ".."
        return f"](/{_ABOVE[name]})" if is_above and name in _ABOVE else match[0]

    return _UP.sub(link, text)


def _with_parts(docname: str, text: str) -> str:
    """The index of decisions is a table. The site's navigation needs the list of their files, too."""
    return text + _DECISIONS if docname == "decisions/README" else text


def _read(app: Any, docname: str, source: list[str]) -> None:
    source[0] = _with_parts(docname, _with_pages_for_documents(docname, with_settings(source[0])))


def setup(app: Any) -> None:
    app.connect("source-read", _read)
