"""The documentation site, make docs. The code of its pages is run by the tests, not here."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import biloop

project = "biloop"
author = "The biloop authors"
copyright = author
version = release = biloop.__version__

extensions = ["myst_parser", "sphinx_design", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]  # of the tabs
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"biloop {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"

# Links to files are checked by tests/test_documents.py, which names the page and the link.
suppress_warnings = ["myst.xref_missing"]

autodoc_typehints = "none"  # fields and signatures have them; the text says what they mean
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_mock_imports = ["torch", "torchax"]  # biloop.torch needs neither to be described
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]  # several names in a line, too
napoleon_use_param = False  # types are words of a sentence: "function" is no link
default_role = "code"  # `name` in a docstring is code

_SECTION = re.compile(r"^-{3,}$")
_FORMULA = re.compile(r"[=←≈≤≥]|^min_")
_COLUMNS = re.compile(r"\S {3,}\S")
_SPECIAL = re.compile(r"(?<!\\)([*|]|(?<=\w)_(?!\w)|(?<=\s[A-Za-z])\.$)", re.MULTILINE)


def _escaped(lines: list[str]) -> list[str]:
    """Text that is no markup: a star is a star, and a line "Q." no item of a list.

    Code in backticks and examples are left alone.
    """
    parts = re.split(r"(`[^`]*`|^ *(?:>>>|\.\.\.) .*$)", "\n".join(lines), flags=re.MULTILINE)
    return "".join(
        part if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts)
    ).split("\n")


def _paragraphs(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _formulas_and_text(app, what, name, thing, options, lines):
    """Docstrings are plain text, formulas and columns on lines of their own: make of it markup."""
    if what in ("attribute", "property") and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)  # before which napoleon expects a type
    end = next((i - 1 for i, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    head, sections = lines[:end], lines[end:]
    made: list[str] = []
    for paragraph in _paragraphs(head):
        text = " ".join(paragraph)
        first = not made
        formula = _FORMULA.search(text) and not text.rstrip().endswith((".", ":", "`", ";"))
        if not first and (formula or all(map(_COLUMNS.search, paragraph))):
            made += [".. code-block:: text", "", *("    " + line for line in paragraph), ""]
        else:
            made += [*_escaped(paragraph), ""]
    # The last _ of a name in a section is escaped by napoleon.
    lines[:] = made + [re.sub(r"^(\S.*)\\_$", r"\1_", line) for line in _escaped(sections)]


def _undescribed(app, what, name, thing, skip, options):
    """Fields of named tuples have no text of their own; that of the class says what they are."""
    return True if (thing.__doc__ or "").startswith("Alias for field number") else None


def setup(app):
    """Before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", _formulas_and_text, priority=400)
    app.connect("autodoc-skip-member", _undescribed)
