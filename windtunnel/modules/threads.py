"""Large work split over Python threads, each of which runs torch operations with one thread.

Torch splits every operation over its threads and waits after each. If operations are small, because their operands
have to stay in a cache, one share of the whole work per thread is faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from threading import Barrier, Event, local
from typing import TypeVar

import torch

Share = TypeVar("Share")
Result = TypeVar("Result")
Other = TypeVar("Other")

_thread = local()


def run_parallel(
    work: Callable[[Share], Result], shares: Sequence[Share], *, single_thread: bool = False
) -> list[Result]:
    """Run ``work`` on all shares in parallel, without gradients; results are in the order of the shares.

    ``torch.get_num_threads()`` shares keep all threads busy. A single share runs in the calling thread, whose torch
    operations use all threads, unless ``single_thread`` is set. Shares of work that is a share itself run one by one,
    as all threads may be busy with such shares. An error or an interrupt is raised once no share runs any more.
    """
    if getattr(_thread, "is_worker", False) or (len(shares) == 1 and not single_thread):
        return [work(share) for share in shares]
    inference = torch.is_inference_mode_enabled()

    def run(share: Share) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return work(share)

    pool = _pool(torch.get_num_threads(), os.getpid())
    futures = [pool.submit(run, share) for share in shares]
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)
        raise


def run_with_background(background: Callable[[Event], Other], work: Callable[[], Result]) -> tuple[Other, Result]:
    """Run two functions at the same time, ``background`` in a thread of its own, each with one thread of torch.

    With one thread in all they run one after the other. After an error or an interrupt in ``work`` the event is set:
    ``background`` should end soon then, and the error is raised once it has ended.
    """
    stop = Event()
    if torch.get_num_threads() == 1:
        return background(stop), work()

    with one_thread(), ThreadPoolExecutor(1, thread_name_prefix="windtunnel-background") as thread:
        future = thread.submit(one_thread()(background), stop)
        try:
            result = work()
            return future.result(), result
        finally:
            stop.set()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch operations with one thread in this context: small operations take longer with several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """The pool of this process: threads outlive a call, but not a fork."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="windtunnel")
    ready = Barrier(threads + 1)

    def alone() -> None:
        _thread.is_worker = True
        torch.get_num_threads()  # a thread takes over torch's number when it first asks, and only then keeps its own
        torch.set_num_threads(1)
        ready.wait()

    for _ in range(threads):
        pool.submit(alone)
    ready.wait()
    torch.set_num_threads(threads)  # the last number that any thread sets is what later threads start from
    return pool
