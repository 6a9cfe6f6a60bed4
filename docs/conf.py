"""Sphinx: the pages of this folder, what is made from the code, and files of the project's root.

Built by ``make docs``, strictly and without a network: a warning ends it.
"""

import gc
import sys
from pathlib import Path

from secure_fedrec import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))

gc.disable()  # a build keeps nearly all that it makes, and ends with its process

project = "secure-fedrec"
copyright = "secure-fedrec contributors, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "generated",  # docs/_site/generated.py
]
exclude_patterns = ["_build", "_site"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

smartquotes = False
nitpicky = True
# Annotations name types of NumPy, PyTorch and of modules that no page shows.
nitpick_ignore_regex = [("py:.*", ".*")]

# Annotations name what several modules have; a link to one of them would be a guess.
suppress_warnings = ["ref.python"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80

html_theme = "pydata_sphinx_theme"
html_title = "secure-fedrec"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "quickstart": []}
