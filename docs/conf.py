"""The documentation site: `make docs` builds it, runs the examples and treats warnings as errors."""

import os
import re
import sys
import warnings
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
warnings.filterwarnings("ignore", "Unknown section Source")  # read_docstring renames it

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PAGES_AT_THE_ROOT = {"architecture": "ARCHITECTURE.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}

from docs import figures  # noqa: E402  (from the repository, which is no installed package)

project = "WindTunnel"
copyright = "the WindTunnel authors"
version = release = installed_version("windtunnel")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "tutorials/*.ipynb", "tutorials/*.py", "tutorials/*.md5"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_typehints = "none"
autosummary_generate = True
INTERNAL = set(
    "append_step check_rows configure defer_softening drop_engine drop_trained_exact_modules encoded_parts facts "
    "in_torch mark_initial_weights of output record replace_categories replace_head replace_modules replace_program "
    "residual_base run_in_slices set_exact_modules takes_residual_model tree_columns metric_for resolve "
    "rows_per_step".split()
)
"""Methods that other folders of the package call; no user does."""
EXAMPLES = {
    "contributing": "translates supported check_translator",
    "howto/cascade": "cascade Cascade",
    "howto/compile": "compile",
    "howto/cross_fit": "crossfit CrossFittedClassifier CrossFittedRegressor",
    "howto/explain": "Explanation",
    "howto/fine_tune": "Recipe Batch loader History CandidateResult Epoch WindTunnelClassifier WindTunnelRegressor",
    "howto/index": "Translation click_log",
    "howto/save": "load save_model log_model load_model",
    "howto/sweep": "sweep SweepResult",
    "howto/translate": "translate FactorizationMachineClassifier FactorizationMachineRegressor",
    "scale": "stream",
    "serving": "serve Server",
    "start": "Report",
}
"""Pages with code that runs, for names whose docstrings have none; the API reference links to them."""
EXAMPLE_OF = {name: page for page, names in EXAMPLES.items() for name in names.split()}
numpydoc_show_class_members = False
copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/\d\d_",
    "ignore_pattern": r"flights\.py",
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
    "abort_on_example_error": True,
    "show_signature": False,
    "reset_modules": (),
}

html_theme = "pydata_sphinx_theme"
html_title = "WindTunnel"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}
ALONE = ("index", "start", "coverage", "troubleshooting", "contributing", "architecture", "changelog")
html_sidebars: dict[str, list[str]] = {page: [] for page in ALONE}


def read_page(app: Any, docname: str, source: list[str]) -> None:
    """Take the pages at the root of the repository into the site, and lead links to them and to examples there."""
    if docname in PAGES_AT_THE_ROOT:
        text = (ROOT / PAGES_AT_THE_ROOT[docname]).read_text(encoding="utf-8")
        source[0] = text.replace("](docs/", "](/")
    source[0] = re.sub(r"\]\((?:\.\./)*examples/README\.rst\)", "](/tutorials/index.rst)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)*examples/(\d\d_\w+)\.py\)", r"](/tutorials/\1.rst)", source[0])
    source[0] = re.sub(
        r"\[([^\]]+)\]\((?:\.\./)*(?:windtunnel|configs|benchmarks|tests)[\w/]*\)", r"\1", source[0]
    )  # folders
    for page, file in PAGES_AT_THE_ROOT.items():
        source[0] = re.sub(rf"\]\((?:\.\./)*{re.escape(file)}", f"](/{page}.md", source[0])


def skip_member(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool:
    """Leave out what only the package itself calls, and what scikit-learn adds."""
    function = getattr(member, "__func__", member)
    return (
        skip
        or name in INTERNAL
        or str(getattr(function, "__module__", "")).startswith("sklearn.")
        or name.endswith("_request")
    )


def read_docstring(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Give the section Source the name that numpydoc knows, and show formulas of the description as they are."""
    text = "\n".join(lines).replace("\nSource\n------\n", "\nReferences\n----------\n")
    description, *sections = re.split(r"(?=\n[A-Z]\w+\n---)", text)
    formula = re.compile(r"(?<=\n\n)(?=    \S)(?<![:-]\n\n)")
    lines[:] = (formula.sub("::\n\n", description) + "".join(sections)).split("\n")


def link_example(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Link to the page that shows a name at work; raise if neither such a page nor the docstring has code that runs."""
    page = EXAMPLE_OF.get(name.rsplit(".", 1)[-1])
    if what not in ("class", "function") or (isinstance(member, type) and issubclass(member, Exception)):
        return
    if page is not None:
        lines += ["", f"Code that runs: :doc:`/{page}`.", ""]
    elif not any(line.strip().startswith(">>>") for line in lines):
        raise ValueError(f"{name} has no example: name a page in EXAMPLES")


def check_tutorials(app: Any, exception: Exception | None) -> None:
    """Raise if a tutorial printed a warning."""
    printed = [path.stem for path in (ROOT / "docs" / "tutorials").glob("*.rst") if "Warning:" in path.read_text()]
    if printed and exception is None:
        raise RuntimeError(f"tutorials print warnings: {', '.join(printed)}")


def setup(app: Any) -> None:
    """Register with Sphinx, and draw the figures."""
    figures.write()
    app.connect("source-read", read_page)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("build-finished", check_tutorials)
    app.connect("autodoc-process-docstring", read_docstring, priority=100)
    app.connect("autodoc-process-docstring", link_example, priority=900)
