"""Few rows by records of what was launched; on a CPU a trace over fixed memory stands in for a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cases import CASES
from parity import assert_same
from sklearn.decomposition import NMF
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import windtunnel
from windtunnel.compiler import cuda_graphs
from windtunnel.compiler.backends import engine
from windtunnel.compiler.cuda_graphs import Replay
from windtunnel.compiler.engine import Run
from windtunnel.errors import InvalidOption

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = [
    "rare, two-hot, trees",
    "trees of three classes",
    "trees, random forest of classes",
    "mean imputer with indicator",
    "booster over pandas categories",
    "linear svc",
]


def trace(run: Run, numbers: Tensor, ids: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """Like a CUDA graph, it holds the shapes, reads and writes the same memory, and fails where numbers are asked."""
    held = make_fx(run)(numbers, ids)
    output = torch.full_like(held(numbers, ids), torch.nan)
    return output, lambda: output.copy_(held(numbers, ids))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were recorded."""
    found: list[int] = []
    plain = cuda_graphs.record if DEVICE == "cuda" else trace

    def counted(run: Run, numbers: Tensor, ids: Tensor) -> tuple[Tensor, Callable[[], None]]:
        found.append(len(ids))
        return plain(run, numbers, ids)

    monkeypatch.setattr(cuda_graphs, "record", counted)
    monkeypatch.setattr(cuda_graphs, "DEVICE", DEVICE)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_records_give_what_the_source_gives(name: str, sizes: list[int]) -> None:
    case = CASES[name]
    net = windtunnel.compile(case.fitted(), backend="cudagraphs", device=DEVICE)
    for rows in (1, 3, 4, 12):
        assert_same(case, net, case.fitted(), case.rows(12)[:rows])
    assert {1, 4, 16} <= set(sizes)


def test_each_size_is_recorded_once_and_outputs_are_kept(sizes: list[int]) -> None:
    run = Replay(lambda numbers, ids: numbers * 2 + ids.sum(dim=1, keepdim=True))
    random = torch.Generator().manual_seed(0)
    kept = []
    for rows in (5, 7, 8, 1, 2, cuda_graphs.MOST, cuda_graphs.MOST + 1, 0):
        numbers = torch.randn(rows, 3, generator=random).to(DEVICE)
        ids = torch.randint(9, (rows, 2), generator=random).to(DEVICE)
        kept.append((run(numbers, ids), numbers * 2 + ids.sum(dim=1, keepdim=True)))
    assert sizes == [8, 1, 2, cuda_graphs.MOST]
    assert all(torch.equal(found, wanted) for found, wanted in kept)


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(InvalidOption, match=r"got a program on 'cpu'; accepted is a GPU. Give device='cuda'"):
        windtunnel.compile(CASES[NAMES[0]].fitted(), backend="cudagraphs")


@pytest.mark.usefixtures("sizes")
def test_rows_that_depend_on_one_another_are_rejected() -> None:
    source = NMF(2, random_state=0, max_iter=500).fit(torch.rand(30, 4, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(InvalidOption, match="in which rows depend on one another"):
        windtunnel.compile(source, backend="cudagraphs", device=DEVICE)


@pytest.mark.usefixtures("sizes")
def test_what_is_written_to_is_recorded_anew() -> None:
    net = windtunnel.compile(CASES["linear regression, two targets"].fitted(), device=DEVICE)
    net.engine = engine(net, "cudagraphs")
    rows = CASES["linear regression, two targets"].rows(12)[:3]
    before = net.scores(rows)
    with torch.no_grad():
        next(net.program.parameters()).mul_(2.0)
    found = net.scores(rows)
    assert not torch.equal(found, before)
    net.engine = None
    torch.testing.assert_close(found, net.scores(rows), rtol=1e-12, atol=1e-12)
