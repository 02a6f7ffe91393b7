"""Shares of a large work on threads of their own, each of which runs torch's operations alone.

Torch by itself splits every operation over its threads and waits after each. Where operations are small, because what
they work on is to stay in a cache, a share of the whole for each thread wastes less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier
from typing import TypeVar

import torch

Share = TypeVar("Share")
Result = TypeVar("Result")


def run_parallel(
    work: Callable[[Share], Result], shares: Sequence[Share], *, single_thread: bool = False
) -> list[Result]:
    """``work`` on every share, at once if there are several; results in the order of the shares.

    No gradient is recorded. As many shares as ``torch.get_num_threads()`` keep all of them busy. A single one is worked
    on here, where torch shares its operations; ``single_thread``, by one thread alone too.
    """
    if len(shares) == 1 and not single_thread:
        return [work(shares[0])]
    inference = torch.is_inference_mode_enabled()

    def run(share: Share) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return work(share)

    return list(_pool(torch.get_num_threads(), os.getpid()).map(run, shares))


@lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads outlive a call, but not a fork: ``process`` is what tells them apart."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="windtunnel")
    ready = Barrier(threads + 1)

    def alone() -> None:
        torch.get_num_threads()  # a thread takes over torch's number when it first asks, and only then keeps its own
        torch.set_num_threads(1)
        ready.wait()

    for _ in range(threads):
        pool.submit(alone)
    ready.wait()
    torch.set_num_threads(threads)  # the last number that any thread sets is what later threads start from
    return pool
