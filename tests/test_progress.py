from __future__ import annotations

import logging
import threading

import pytest

from windtunnel import progress
from windtunnel.progress import Phase, log, show_progress


def shown_phase(*, shown: bool, delay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", delay)
    appeared = threading.Event()
    appear = Phase._appear
    monkeypatch.setattr(Phase, "_appear", lambda phase: (appear(phase), appeared.set()))
    with show_progress(shown), Phase("encoding", total=3) as phase:
        phase.advance()
        if shown and not delay:
            assert appeared.wait(30)


@pytest.mark.parametrize(("shown", "delay", "lines"), [(True, 0.0, 1), (False, 0.0, 0), (True, 600.0, 0)])
def test_a_long_phase_writes_a_line(
    shown: bool, delay: float, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windtunnel")
    shown_phase(shown=shown, delay=delay, monkeypatch=monkeypatch)
    assert [line.startswith("encoding: ") for line in caplog.messages] == [True] * lines


def test_lines_go_to_standard_error_without_a_handler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress.LOGGER, "propagate", False)
    monkeypatch.setattr(progress.LOGGER, "handlers", [])
    log("kept: source pipeline")
    assert capsys.readouterr() == ("", "kept: source pipeline\n")
