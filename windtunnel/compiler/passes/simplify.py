"""Runs all passes over a program, and records the columns that they save."""

from __future__ import annotations

import math
from dataclasses import replace

from windtunnel.compiler.passes.fold import fold
from windtunnel.compiler.passes.select_columns import select_columns
from windtunnel.compiler.passes.separate_sums import separate_sums
from windtunnel.encode import RowEncoder
from windtunnel.modules.tables.category_table import Identity
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.program import IDS, NUMBERS
from windtunnel.program.records.simplification import Simplification
from windtunnel.program.summed_counts import counting_hosts
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.wiring import NodeColumn, Wiring


def simplify(net: TranslatedPipeline) -> None:
    """Select columns, fold linear maps and separate sums in the program of a net, in place; its encoder reads the rest.

    Outputs agree to the last few digits, and decisions of trees exactly. The same rows are rejected, with two
    exceptions: a raw column that nothing reads may be missing or hold any values, and an overflowing product counts as
    infinite only where it is still computed. A program of trees alone is left as it is.
    """
    if len(net.program.steps) == 1 and isinstance(net.program.steps[0].module, HardTrees):
        return  # files of LightGBM and XGBoost have all columns that the trees were fitted on
    wiring = Wiring.of(net.program, net.origins)
    before = wiring.widths(net.encoder)
    counts = counting_hosts(net.encoder, net.hosts)
    select_columns(wiring, before, counts)
    fold(wiring)
    separate_sums(wiring, counts)
    fold(wiring)
    encoder = _reduced_encoder(wiring, net.encoder)
    program, origins = wiring.program()
    net.replace_program(program, origins=origins, encoder=encoder)
    net.requires_grad_(False).eval()
    net.mark_initial_weights()
    after = wiring.widths(net.encoder)
    # Guards compute no columns.
    columns = sum(after[node] for node in wiring.nodes if not isinstance(node.module, Identity))
    not_computed = {NUMBERS, IDS, *wiring.method_nodes.values()}
    columns_before = sum(width for source, width in before.items() if source not in not_computed)
    net.record(simplification=Simplification(columns, columns_before, _unread(net)))


def _unread(net: TranslatedPipeline) -> tuple[str, ...]:
    """The raw columns that no step reads; a host step reads all of them."""
    if net.hosts:
        return ()
    read = set(net.encoder.used_columns())
    return tuple(net.encoder.column_name(column) for column in range(net.encoder.width) if column not in read)


def _reduced_encoder(wiring: Wiring, encoder: RowEncoder) -> RowEncoder:
    """The encoder of the columns that nodes read and of categories with checks; updates the places in the wiring."""
    read = dict.fromkeys(place for node in wiring.all_nodes() for place in node.inputs if isinstance(place[0], int))
    guarded = [node for node in wiring.nodes[:-1] if isinstance(node.module, Identity)]
    computed = {place for node in wiring.all_nodes() if node not in guarded for place in node.inputs}
    numbers = _neighbouring([at for source, at in read if source == NUMBERS], computed, encoder)
    ids = [at for at, category in enumerate(encoder.categories) if (IDS, at) in read or category.rejects]
    if not numbers and not ids:
        # At least one column, for the number of rows.
        numbers, ids = ([0], []) if encoder.numbers else ([], [0])
    places: dict[NodeColumn, NodeColumn] = {(NUMBERS, old): (NUMBERS, new) for new, old in enumerate(numbers)}
    places |= {(IDS, old): (IDS, new) for new, old in enumerate(ids)}
    for node in wiring.all_nodes():
        node.inputs = [places.get(place, place) for place in node.inputs]
    users = wiring.users()
    for node in guarded:
        if node not in users:
            # In the order of the batch, where neighbouring columns are a view.
            node.inputs.sort(key=lambda place: place[1] if isinstance(place[0], int) else math.inf)
    return replace(
        encoder,
        numbers=[encoder.numbers[at] for at in numbers],
        categories=[encoder.categories[at] for at in ids],
    )


def _neighbouring(numbers: list[int], computed: set[NodeColumn], encoder: RowEncoder) -> list[int]:
    """The numbers, computed ones first, so that a node's inputs are neighbours and need no copy."""
    numbers = sorted(numbers, key=lambda at: encoder.numbers[at])
    used = [at for at in numbers if (NUMBERS, at) in computed]
    # Rows with all columns in fitted order are not copied.
    if 2 * len(used) <= len(numbers) and [encoder.numbers[at] for at in numbers] == list(range(encoder.width)):
        return numbers
    return sorted(numbers, key=lambda at: ((NUMBERS, at) not in computed, at))
