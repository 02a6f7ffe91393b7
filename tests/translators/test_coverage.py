"""Every estimator that the libraries ship has a converter, is walked, or has a reason; docs/coverage.md says which."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from sklearn.linear_model import Ridge

from windtunnel import RareCategories, translates
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators import registry
from windtunnel.translators.untranslated import REASONS, public_name

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("predict", "transform", "predict_proba", "decision_function", "score_samples")


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield importlib.import_module("docs.coverage")


def test_every_class_has_a_reader_or_a_reason(coverage: ModuleType) -> None:
    known = coverage.registered().keys() | coverage.WALKED | REASONS.keys()
    neither = [name for name in coverage.listed() if name not in known]
    assert not neither, (
        f"{len(neither)} classes have neither a reader nor a reason in windtunnel/translators/untranslated.py: "
        f"{', '.join(neither)}"
    )


def test_no_class_has_both_a_reader_and_a_reason(coverage: ModuleType) -> None:
    both = sorted((coverage.registered().keys() | coverage.WALKED) & REASONS.keys())
    assert not both, f"there is a reader, so take the reason out of windtunnel/translators/untranslated.py: {both}"


def test_every_reason_is_about_a_class_that_is_there(coverage: ModuleType) -> None:
    unknown = sorted(REASONS.keys() - set(coverage.listed()))
    assert not unknown, f"no library that is listed in docs/coverage.md has {unknown}"
    assert all(reason and not reason.endswith(".") for reason in REASONS.values())


@pytest.mark.parametrize("name", [name for name, reason in REASONS.items() if "has no predict or transform" in reason])
def test_what_is_said_to_have_no_outputs_has_none(name: str) -> None:
    module, _, cls = name.rpartition(".")
    found = getattr(importlib.import_module(module), cls)
    assert not [method for method in METHODS if hasattr(found, method)]


def test_the_peers_are_named_as_the_libraries_name_them(coverage: ModuleType) -> None:
    installed = {name for name in coverage.listed() if name.split(".")[0] in sys.modules}
    named = set().union(*coverage.PEERS.values())
    for name in sorted(named & installed):
        module, _, cls = name.rpartition(".")
        assert public_name(getattr(importlib.import_module(module), cls)) == name


def test_public_names() -> None:
    assert public_name(Ridge) == "sklearn.linear_model.Ridge"
    assert public_name(RareCategories) == "windtunnel.RareCategories"
    assert public_name(type("Own", (), {})) == f"{__name__}.Own"


def test_the_page_is_current(coverage: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.main(["--check"]) == 0, capsys.readouterr().out


def test_a_stale_page_is_noticed_and_mended(
    coverage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "coverage.md"
    monkeypatch.setattr(coverage, "PAGE", stale)
    assert coverage.main(["--check"]) == 1
    assert "make coverage" in capsys.readouterr().out
    assert coverage.main([]) == 0
    assert coverage.main(["--check"]) == 0


def test_readers_from_outside_are_not_counted(coverage: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    before = coverage.page()

    @translates(type("Own", (), {}))
    def own(fitted: object) -> registry.Conversion:
        raise UnsupportedEstimator("nothing to read")

    assert coverage.page() == before


def test_a_converter_may_be_defined_again_and_takes_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    cls = type("Own", (), {})
    for _ in range(2):  # as the cell of a notebook that runs twice

        def own(fitted: object) -> registry.Conversion:
            raise UnsupportedEstimator("nothing to read")

        own.__module__ = "__main__"
        translates(cls)(own)

    with pytest.raises(TypeError, match="two translations"):

        @translates(cls)
        def other(fitted: object) -> registry.Conversion:
            raise UnsupportedEstimator("nothing to read")

    with pytest.raises(TypeError, match="give the class of an estimator, such as Own"):
        translates(cls())
        translates(cls())(own)
