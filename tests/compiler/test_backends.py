"""What runs a program: every backend gives what eager PyTorch gives."""

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from case import Case, table
from cases import CASES, LONG_RUN, parametrized
from module_cases import MODULE_CASES
from parity import assert_same, compiled, reindexed_rows
from sklearn.decomposition import NMF
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor
from torch.export import ExportedProgram

import windtunnel
from windtunnel.compiler import exported
from windtunnel.compiler.backends import engine
from windtunnel.compiler.engine import Run
from windtunnel.encode import Batch
from windtunnel.encode.vocabulary import FEW_ROWS
from windtunnel.errors import BadInput, InvalidOption, UnfaithfulOption
from windtunnel.modules.base import Module
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.program import row_slices as slices

SPREAD = [
    "robust scaler",
    "normalizer",
    "mean imputer with indicator",
    "imputer of texts, one-hot",
    "constant imputer, ordinal, trees",
    "ordinal, trees with categories",
    "ce hashing of one column, numbers beside",
    "ce target",
    "rare, two-hot, trees",
    "linear regression, two targets",
    "sgd modified huber",
    "linear svc",
    "trees over pandas categories",
    "trees of three classes",
    "trees, zero as missing",
    "trees, random forest of classes",
    "booster over pandas categories",
    "a column as number and as category",
    "weights",
    "columns of columns, named by pandas",
    "nothing but passing",
]
ONNX = CASES.values() if LONG_RUN else [CASES[name] for name in SPREAD]
"""Exporting takes a second or two, so that the whole table is for long runs."""
SCRIPTED = [case for case in CASES.values() if LONG_RUN or case.id in SPREAD or case.id in MODULE_CASES]
"""Every module at least once; the whole table takes minutes."""
PIPELINE = "rare, two-hot, trees"
BACKENDS = ("torchscript", "onnx")
SHARED = [PIPELINE, "trees of three classes", "booster over pandas categories", "weights"]
"""Cases that several tests run on each backend, compiled once."""
GRAPHS = ["trees alone", "trees of three classes", "rare, two-hot, trees", "linear regression, two targets"]
"""Graphs of ``torch.export``, whose parity on the whole table is that of the files."""


def assert_as_eager(case: Case, backend: str) -> None:
    net = compiled(case.id)
    run = compiled(case.id, backend=backend).engine if case.id in SHARED else engine(net, backend)
    batch = net.encode(case.rows())
    with torch.inference_mode():
        for method in ("scores", *net.program.method_steps):
            for rows in (len(batch.ids), 1, 2):
                given = batch.numbers[:rows], batch.ids[:rows]
                found, wanted = run.output(method, *given), net.program.output(method, *given)
                assert found.shape == wanted.shape and found.dtype == wanted.dtype, method
                torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9, equal_nan=True, msg=method)


@parametrized(*SCRIPTED)
def test_torchscript(case: Case) -> None:
    assert_as_eager(case, "torchscript")


@parametrized(*ONNX)
def test_onnx(case: Case) -> None:
    try:
        assert_as_eager(case, "onnx")
    except UnfaithfulOption as rejected:
        if case.id in SPREAD:
            raise
        pytest.skip(str(rejected))


@parametrized(*ONNX)
def test_native(case: Case) -> None:
    assert_as_eager(case, "native")


@pytest.mark.parametrize("name", GRAPHS)
def test_exported(name: str) -> None:
    assert_as_eager(CASES[name], "exported")


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_aoti(name: str) -> None:
    assert_as_eager(CASES[name], "aoti")


@pytest.mark.slow
def test_aoti_compiled_anew_once_written_to() -> None:
    case = CASES["linear regression, two targets"]
    net = windtunnel.compile(case.fitted(), backend="aoti")
    assert_same(case, net, case.fitted(), case.rows())
    with torch.no_grad():
        next(net.program.parameters()).mul_(2.0)
    batch = net.encode(case.rows())
    torch.testing.assert_close(net.scores(case.rows()), net.program(*batch), rtol=1e-12, atol=1e-12)


def test_native_code_is_given_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, graphs = [], []

    def boxed_run(blocks: list[Tensor]) -> list[Tensor]:
        sizes.append(len(blocks[0]))
        return [graphs[0].module()(*blocks)]

    run = SimpleNamespace(loader=SimpleNamespace(boxed_run=boxed_run))
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", lambda graph, **options: graphs.append(graph))
    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda path: run)
    monkeypatch.setattr(exported, "AT_ONCE", 7 * len(compiled("trees alone").program.steps[-1].module.root))
    case = CASES["trees alone"]
    net = windtunnel.compile(case.fitted(), backend="aoti")
    sizes.clear()
    assert torch.equal(net.scores(case.rows(20)), compiled(case.id).scores(case.rows(20)))
    assert sizes == [7, 7, 6]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each graph is given that torch steps through, call by call."""
    given, ready = [], exported.ExportedEngine.ready

    def spied(self: exported.ExportedEngine, graph: ExportedProgram) -> Run:
        run = ready(self, graph)
        return lambda numbers, ids: given.append(len(ids)) or run(numbers, ids)

    monkeypatch.setattr(exported.ExportedEngine, "ready", spied)
    return given


@pytest.mark.parametrize(
    "name", ["trees alone", "trees of three classes", "rare, two-hot, trees", "booster over pandas categories"]
)
def test_slices_of_graphs_do_not_show(name: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    program = compiled(name).program
    (trees,) = (len(one.root) for one in program.modules() if isinstance(one, TreeWalk))
    whole = windtunnel.compile(case.fitted(), backend="exported")
    monkeypatch.setattr(exported, "AT_ONCE", 7 * trees)
    cut, batch = windtunnel.compile(case.fitted(), backend="exported"), compiled(name).encode(case.rows(20))
    for method in ("scores", *program.method_steps):
        for rows, parts in ((20, [7, 7, 6]), (14, [7, 7]), (7, [7]), (1, [1]), (0, [0])):
            given = [block[:rows] for block in batch]
            wanted = whole.engine.output(method, *given)
            sizes.clear()
            found = cut.engine.output(method, *given)
            assert sizes == parts and torch.equal(found, wanted) and found.dtype == wanted.dtype
            torch.testing.assert_close(found, program.output(method, *given), rtol=1e-12, atol=1e-12)


def test_the_widest_tensor_of_a_graph_cuts_its_rows(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    given = np.random.default_rng(0).normal(size=(20, 3))
    source = PolynomialFeatures().fit(given)  # to ten columns
    monkeypatch.setattr(exported, "WIDEST", 79)
    net = windtunnel.compile(source, backend="exported")
    sizes.clear()
    np.testing.assert_allclose(net.transform(given), source.transform(given), 1e-12)
    assert sizes == [7, 7, 6]
    monkeypatch.setattr(exported, "WIDEST", 1)
    net = windtunnel.compile(source, backend="exported")
    sizes.clear()
    net.transform(given)
    assert sizes == [1] * 20


def test_graphs_whose_rows_stop_together_are_given_all(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    given = np.random.default_rng(0).random((20, 3))
    monkeypatch.setattr(exported, "WIDEST", 1)
    net = windtunnel.compile(NMF(2, max_iter=500).fit(given), backend="exported")
    assert net.program.needs_all_rows()
    sizes.clear()
    net.transform(given)
    assert sizes == [20]


@pytest.mark.parametrize("backend", ("torch", *BACKENDS))
def test_threads_change_nothing(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["trees of three classes"]
    net, rows = windtunnel.compile(case.fitted(), backend=backend, batch_size=64), case.rows()
    monkeypatch.setattr("windtunnel.program.row_slices.LEAST_ROWS", 16)
    run_parallel, shares = slices.run_parallel, []

    def spy(work: object, slices: list[slice], *, single_thread: bool) -> list[Tensor]:
        shares.append([part.stop - part.start for part in slices])
        return run_parallel(work, slices, single_thread=single_thread)

    monkeypatch.setattr(slices, "run_parallel", spy)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = net.scores(rows)
        assert not shares
        torch.set_num_threads(3)
        assert torch.equal(net.scores(rows), alone) and torch.equal(net.scores(rows[:1]), alone[:1])
        assert shares and all(len(one) >= 3 and max(one) <= 64 for one in shares)
        shares.clear()
        assert torch.equal(net.scores(rows[:20]), alone[:20])
        assert shares == [[20]]  # too few to share, by one thread alone
    finally:
        torch.set_num_threads(before)


def test_a_slice_that_is_not_shared_is_run_by_a_thread_that_shares_nothing() -> None:
    before, batch = torch.get_num_threads(), Batch(torch.zeros(20, 1), torch.zeros(20, 0, dtype=torch.int64))
    found: list[int] = []

    def run(numbers: Tensor, ids: Tensor) -> Tensor:
        found.append(torch.get_num_threads())
        return numbers

    try:
        torch.set_num_threads(3)
        for rows in (1, 20):
            few = Batch(*(block[:rows] for block in batch))
            slices.in_slices(run, few, 64, slices.CPU, whole=False)
        assert found == [3, 1] and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_large_trees_are_shared_among_threads_sooner() -> None:
    case = CASES["trees of three classes"]
    program = windtunnel.compile(case.fitted()).program
    assert slices.least_rows(program) == slices.LEAST_ROWS
    assert slices.least_rows_of(slices.MANY_LEAVES) == slices.LEAST_ROWS_OF_TREES
    soft = windtunnel.translate(case.fitted(), calibrate=case.rows()).soften()
    assert slices.least_rows(soft.program) == slices.LEAST_ROWS_OF_TREES


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_that_is_replaced_is_run(backend: str) -> None:
    frame = table()[["income", "visits"]]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, frame["visits"] > 0)
    net = windtunnel.compile(model, backend=backend)
    before, step = net.scores(frame), net.program.steps[-1]
    step.module = copy.deepcopy(step.module)
    with torch.no_grad():
        next(step.module.parameters()).mul_(2.0)
    torch.testing.assert_close(net.scores(frame), net.program(*net.encode(frame)), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(net.scores(frame), before)


@pytest.mark.parametrize("backend", ["torch", "torchscript", "exported", "onnx"])
@pytest.mark.parametrize("name", SHARED)
def test_a_row_alone_gives_what_it_gives_among_others(backend: str, name: str) -> None:
    net, rows = compiled(name, backend=backend), CASES[name].rows()
    assert len(rows) > FEW_ROWS
    for method in {"predict", "predict_proba", "decision_function"} & {*net.head.methods}:
        together = getattr(net, method)(rows)
        for at in (0, 7, len(rows) - 1):
            alone = getattr(net, method)(rows[at : at + 1])
            assert alone.dtype == together.dtype
            np.testing.assert_array_equal(alone, together[at : at + 1])


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_cached_facts_of_a_program_are_computed_anew_for_other_modules(backend: str) -> None:
    frame = table()[["age", "income"]]
    net = windtunnel.compile(StandardScaler().fit(frame), backend=backend)
    net.transform(frame[:1] * 0 + 101.0)
    net.program.steps[0].module = Rejecting()
    with pytest.raises(BadInput, match="1 of 1 rows have no finite score"):
        net.transform(frame[:1] * 0 + 101.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39, -1e39])
@pytest.mark.parametrize("count", [1, 3000])
def test_odd_numbers_are_seen_in_few_rows_and_in_many(value: float, count: int) -> None:
    given = np.random.default_rng(0).normal(size=(3000, 2))
    # Trees of scikit-learn read float32, and take missing values where some were fitted on.
    model = LogisticRegression() if np.isnan(value) else DecisionTreeClassifier(max_depth=2)
    net = windtunnel.compile(model.fit(given, given[:, 0] > 0))
    net.predict(given[:count] * 1e30)
    given[count - 1, 1] = value
    with pytest.raises(BadInput, match=f"1 of {count} rows"):
        net.predict(given[:count])


def test_what_is_encoded_is_a_copy() -> None:
    given = np.random.default_rng(0).normal(size=(3, 2))
    net = windtunnel.compile(StandardScaler().fit(given))
    numbers = net.encode(given).numbers
    assert not np.shares_memory(numbers.numpy(), given) and np.array_equal(numbers.numpy(), given)


@pytest.mark.parametrize("count", [3, 20_000])
@pytest.mark.parametrize("model", [FunctionTransformer(), StandardScaler()], ids=["nothing", "scaler"])
def test_outputs_leave_the_given_array_alone(model: Any, count: int) -> None:
    given = np.random.default_rng(0).normal(size=(count, 2))
    copy = given.copy()
    output = windtunnel.compile(model.fit(given)).transform(given)
    assert not np.shares_memory(output, given)
    output += 1
    np.testing.assert_array_equal(given, copy)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_in_any_layout(dtype: str) -> None:
    given = np.random.default_rng(0).normal(size=(100, 6))
    given[3, 1] = np.nan
    net = windtunnel.compile(StandardScaler().fit(given[:, ::2]), dtype=dtype)
    wanted = net.transform(given[:, ::2].copy())
    fixed = given[:, ::2].copy()
    fixed.flags.writeable = False
    for one in (given[:, ::2], np.asfortranarray(given[:, ::2]), fixed, given[::-1, ::2][::-1]):
        np.testing.assert_array_equal(net.transform(one), wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compile_gives_the_outputs_of_the_source(backend: str, dtype: str) -> None:
    for name in (PIPELINE, "trees of three classes"):
        case = CASES[name]
        net = windtunnel.compile(case.fitted(), backend=backend, dtype=dtype, batch_size=64)
        assert_same(case, net, case.fitted(), reindexed_rows(case))
        assert_same(case, net, case.fitted(), case.rows()[:1])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("strategy", ["gemm", "tree_traversal", "perfect_tree_traversal"])
def test_strategies_run_in_every_backend(backend: str, strategy: str) -> None:
    for name in ("ordinal, trees with categories", "trees, zero as missing"):
        case = CASES[name]
        net = windtunnel.compile(case.fitted(), backend=backend, strategy=strategy)
        check_same(net.scores(case.rows()), compiled(name).scores(case.rows()), backend)


def check_same(scores: Tensor, wanted: Tensor, backend: str) -> None:
    """Equal bits, but for ONNX Runtime, which adds up trees in an order that depends on its threads."""
    tolerance = 1e-12 if backend == "onnx" else 0.0
    torch.testing.assert_close(scores, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_are_cut(backend: str) -> None:
    case = CASES["trees alone"]
    net = windtunnel.compile(case.fitted(), backend=backend, batch_size=7)
    cuts, run = [], net.engine.output

    def spy(method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        cuts.append((numbers.storage_offset() // numbers.stride(0), len(ids)))
        return run(method, numbers, ids)

    net.engine.output = spy
    check_same(net.scores(case.rows(20)), compiled(case.id).scores(case.rows(20)), backend)
    assert sorted(cuts) == [(0, 7), (7, 7), (14, 6)]  # threads may take the slices in any order


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copies_run_their_own_program(backend: str, copied: object) -> None:
    case, net = CASES[PIPELINE], compiled(PIPELINE, backend=backend)
    wanted, other = net.scores(case.rows()), copied(net)
    assert other.engine.program is other.program is not net.program
    assert torch.equal(other.scores(case.rows()), wanted)
    with torch.no_grad():
        next(other.program.parameters()).add_(1.0)
    assert not torch.equal(other.scores(case.rows()), wanted)
    assert torch.equal(net.scores(case.rows()), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_written_moved_or_loaded_is_run(backend: str) -> None:
    frame = table()[["income", "visits"]]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, frame["visits"] > 0)
    net, eager = (windtunnel.compile(model, backend=one) for one in (backend, "torch"))
    torch.testing.assert_close(net.scores(frame), eager.scores(frame), rtol=1e-12, atol=1e-12)
    changed = {name: value * 2 for name, value in net.state_dict().items()}
    for one in (net, eager):
        one.load_state_dict(changed)
    torch.testing.assert_close(net.scores(frame), eager.scores(frame), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(net.scores(frame), windtunnel.compile(model).scores(frame))


@pytest.mark.parametrize("backend", BACKENDS)
def test_there_is_nothing_to_fit(backend: str) -> None:
    case, net = CASES[PIPELINE], compiled(PIPELINE, backend=backend)
    why = "nothing in this translation is trainable" if backend == "torch" else "runs on a backend that is fixed"
    with pytest.raises((BadInput, InvalidOption), match=why):
        net.fit(case.train(), residual=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_saved_without_the_backend(backend: str, tmp_path) -> None:
    case, net = CASES[PIPELINE], compiled(PIPELINE, backend=backend)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    assert loaded.engine is None
    check_same(loaded.scores(case.rows()), net.scores(case.rows()), backend)
    loaded.engine = engine(loaded, backend)
    assert type(loaded.engine) is type(net.engine)
    check_same(loaded.scores(case.rows()), net.scores(case.rows()), backend)


class Rejecting(Module):
    """Rejects great numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    def rejected_rows(self, x: Tensor) -> Tensor:
        return x[:, 0] > 100


def test_sessions_compute_no_more_than_their_output(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    given, run = [], onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda model, *a, **k: given.append(model) or run(model, *a, **k)
    )
    X = np.random.default_rng(0).normal(size=(50, 2))
    windtunnel.compile(DecisionTreeClassifier(max_depth=2).fit(X, X[:, 0] > 0), backend="onnx")  # has apply too
    assert len(given) > 1
    for model in given:
        graph = onnx.load_from_string(model).graph
        read = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
        assert all(read & set(node.output) for node in graph.node)
