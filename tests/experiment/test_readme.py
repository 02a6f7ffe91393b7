"""The pages stay true: their code runs and prints what they say, and what they name exists."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import windtunnel
from windtunnel.cli import app
from windtunnel.modules.base import MODULES
from windtunnel.testing import check_translator
from windtunnel.translators import registry
from windtunnel.translators.registry import supported

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
HOWTO = [DOCS / "howto" / "index.md", *sorted(set((DOCS / "howto").glob("*.md")) - {DOCS / "howto" / "index.md"})]
PAGES = {"README": [ROOT / "README.md"], "start": [DOCS / "start.md"], "howto": HOWTO}
"""Pages whose code runs; that of the how-to pages runs in one process, after their first page."""
LINKED = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("howto/*.md"), *DOCS.glob("concepts/*.md")]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+")


def blocks(page: str) -> list[tuple[str, str]]:
    """Python blocks of a page, each with the text block that follows it as its output, or ''."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES[page])
    fences = list(FENCE.finditer(text))
    return [
        (fence.group(2), after.group(2) if after and text[fence.end() : after.start()].strip() == "" else "")
        for fence, after in zip(fences, [*fences[1:], None], strict=True)
        if fence.group(1) == "python"
    ]


def test_the_worked_example_of_an_operator_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fences = FENCE.finditer((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    estimator, module, reader, check, row = (fence.group(2) for fence in fences if fence.group(1) == "python")
    # In a file, as its source is read by torch.jit.script and as fitted estimators are hashed by the names of classes.
    (tmp_path / "squeeze_example.py").write_text("\n".join([estimator, module, reader]), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    try:
        namespace = dict(vars(importlib.import_module("squeeze_example")))
        for code in (check, row):
            exec(compile(code, "CONTRIBUTING.md", "exec"), namespace)
        (case,) = namespace["CASES"]
        fitted, rows = case.fitted(), case.rows()
        check_translator(fitted, rows)
        net = windtunnel.translate(fitted)
        net.save(tmp_path / "model.windtunnel")
        again = windtunnel.load(tmp_path / "model.windtunnel")
        np.testing.assert_array_equal(again.predict_proba(rows), net.predict_proba(rows))
        net.export(tmp_path / "model.ts")
    finally:
        MODULES.pop("Squeezed", None)


def test_the_first_code_comes_early() -> None:
    lines = README.splitlines()
    assert next(number for number, line in enumerate(lines, start=1) if line.startswith("```python")) < 30


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")
def test_the_code_prints_what_is_shown(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for code, shown in blocks(page):
        exec(compile(code, page, "exec"), namespace)
        printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown.rstrip("\n")), printed
        # Sums in another order, as other processors take them, move an AUC by less than half a percent.
        assert [float(value) for value in NUMBER.findall(printed)] == pytest.approx(
            [float(value) for value in NUMBER.findall(shown)], abs=5e-3
        )


def test_supported_prints_as_a_table() -> None:
    first, *rows = str(supported()).splitlines()
    assert first.split() == ["class", "library", "exact", "differentiable", "trainable"]
    assert len(rows) == len(supported())
    assert next(row for row in rows if row.startswith("TwoHotEncoder")).split()[1:4] == ["windtunnel", "yes", "yes"]


def drawn() -> list[str]:
    """Figures that `make docs` draws from the stored results."""
    text = (DOCS / "figures.py").read_text(encoding="utf-8")
    return [f"_figures/{name}.svg" for name in re.findall(r'^    "(\w+)": \1,', text, re.MULTILINE)]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_the_pages_name_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z]+)", text, re.MULTILINE)) <= targets
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert set(re.findall(r"(?:`|^)windtunnel ([a-z]+)", text, re.MULTILINE)) <= commands
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not page.parent.joinpath(link).exists() and link not in drawn()] == []


def test_every_page_is_linked_from_another_one_and_addresses_are_whole() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "examples" / "README.rst"]
    pages = [page for page in pages if not {"_build", "generated", "tutorials"} & {*page.parts}]
    linked, addresses = set(), set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if ":" not in link]
        linked |= {page.parent.joinpath(link).resolve() for link in links} - {page.resolve()}
        addresses |= set(re.findall(r"https?:[^\s)>`\"']*", text))
    included = {"architecture.md", "changelog.md", "contributing.md"}  # from the root of the repository
    alone = [page.name for page in pages if page.resolve() not in linked and page.name not in included]
    assert set(alone) <= {"index.md", "README.md", "CHANGELOG.md"}
    assert [address for address in addresses if not re.fullmatch(r"https://[\w.-]+\.\w+(/[\w./%~@-]*)?", address)] == []


def test_the_ways_to_install_and_to_check_are_named() -> None:
    assert all(f"make {target}" in README for target in ("setup", "demo", "test"))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_figure_and_table_show_the_measured_gains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    gains = importlib.import_module("docs.gains")
    assert gains.main(["--check"]) == 0, capsys.readouterr().out
    assert ">+0.0482</text>" in gains.figure([gains.Gain("flights", "default", 0.0482, 0.0002)])
