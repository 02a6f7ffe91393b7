"""Shares of a work on threads of their own: their order, their errors, and what they leave of torch's settings."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from windtunnel.modules.threads import one_thread, run_parallel, run_with_background


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_shares_run_apart_each_with_one_thread_of_torch_and_come_back_in_order() -> None:
    both = threading.Barrier(2, timeout=60)

    def work(share: int) -> tuple[int, str, int]:
        both.wait()
        return share, threading.current_thread().name, torch.get_num_threads()

    first, second = run_parallel(work, [0, 1])
    assert (first[0], second[0]) == (0, 1) and first[2] == second[2] == 1
    assert len({first[1], second[1], threading.current_thread().name}) == 3


def test_torch_keeps_its_threads_elsewhere() -> None:
    run_parallel(abs, [-1, -2])
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2] and torch.get_num_threads() == 2


def test_one_share_stays_in_its_thread() -> None:
    assert run_parallel(lambda _: threading.current_thread(), [0]) == [threading.current_thread()]


def test_what_goes_wrong_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_parallel(lambda share: 1 // share, [1, 0])
    assert run_parallel(abs, [-1, -2]) == [1, 2]


def test_an_error_is_raised_once_no_share_runs() -> None:
    started, ended = threading.Event(), threading.Event()

    def work(share: int) -> None:
        if share:
            started.set()
            time.sleep(0.1)
            ended.set()
            return
        started.wait(60)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_parallel(work, [0, 1])
    assert ended.is_set()


def test_shares_of_a_share_run_in_its_thread() -> None:
    def work(_: int) -> set[str]:
        names = run_parallel(lambda _: threading.current_thread().name, range(4), single_thread=True)
        return {threading.current_thread().name, *names}

    assert [len(names) for names in run_parallel(work, [0, 1])] == [1, 1]


def test_one_thread_in_a_context() -> None:
    with pytest.raises(ZeroDivisionError), one_thread():
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    run_parallel(abs, [-1, -2])
    child = multiprocessing.get_context("fork").Process(target=forked)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def forked() -> None:
    found = run_parallel(lambda share: (share, os.getpid()), [3, 4])
    os._exit(0 if found == [(3, os.getpid()), (4, os.getpid())] else 1)


def test_two_functions_run_with_background_each_other() -> None:
    both = threading.Barrier(2, timeout=60)

    def work() -> tuple[str, int]:
        both.wait()
        return threading.current_thread().name, torch.get_num_threads()

    (background, threads_there), (here, threads_here) = run_with_background(lambda _: work(), work)
    assert here == threading.current_thread().name != background and threads_here == threads_there == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert run_with_background(lambda _: threading.get_ident(), threading.get_ident) == (threading.get_ident(),) * 2


def test_what_runs_beside_an_interrupted_function_is_told_to_end() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    ended = threading.Event()

    def background(stop: threading.Event) -> None:
        assert stop.wait(60)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_with_background(background, interrupted)
    assert ended.is_set()


def test_an_error_beside_a_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_with_background(lambda _: 1 // 0, lambda: None)
