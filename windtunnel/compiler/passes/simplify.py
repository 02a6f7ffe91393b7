"""All passes, one after the other, and what they have saved."""

from __future__ import annotations

import math
from dataclasses import replace

from windtunnel.compiler.passes.fold import fold
from windtunnel.compiler.passes.narrow import narrow
from windtunnel.encode import RowEncoder
from windtunnel.modules.tables.category_table import Identity
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.program import IDS, NUMBERS
from windtunnel.program.program_facts import always_finite
from windtunnel.program.simplification import Simplification
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.wiring import Place, Wiring


def simplify(net: TranslatedPipeline) -> None:
    """Narrow and fold the program of a net in place, and have its encoder read no more than that takes.

    Answers stay what they were to the last few digits (decisions of trees to the last one), and what was rejected is
    rejected, but for what nobody looks at any more: rows may come without a raw column that nothing reads, or with
    anything in it; and a product beyond the largest number counts as infinite only where it is computed. Trees
    without steps before them are left as they are.
    """
    if len(net.program.steps) == 1 and isinstance(net.program.steps[0].module, HardTrees):
        return  # files of LightGBM and XGBoost are given all columns that the trees were fitted on
    wiring = Wiring.of(net.program, net.origins)
    before = wiring.widths(net.encoder)
    narrow(wiring, before, always_finite(net.encoder, net.hosts))
    fold(wiring)
    encoder = _reading(wiring, net.encoder)
    program, origins = wiring.program()
    net.replace_program(program, origins=origins, encoder=encoder)
    net.requires_grad_(False).eval()
    net.mark_initial_weights()
    after = wiring.widths(net.encoder)
    # Guards pass on what others have computed.
    columns = sum(after[node] for node in wiring.nodes if not isinstance(node.module, Identity))
    none = {NUMBERS, IDS, *wiring.method_nodes.values()}
    of_columns = sum(width for source, width in before.items() if source not in none)
    net.record(simplification=Simplification(columns, of_columns, _unread(net)))


def _unread(net: TranslatedPipeline) -> tuple[str, ...]:
    """The raw columns that no step reads; a host step reads all of them."""
    if net.hosts:
        return ()
    read = set(net.encoder.used_columns())
    return tuple(net.encoder.column_name(column) for column in range(net.encoder.width) if column not in read)


def _reading(wiring: Wiring, encoder: RowEncoder) -> RowEncoder:
    """Read what nodes are given, and categories that the source rejects; number the places anew."""
    read = dict.fromkeys(place for node in wiring.everything() for place in node.given if isinstance(place[0], int))
    guarded = [node for node in wiring.nodes[:-1] if isinstance(node.module, Identity)]
    computed = {place for node in wiring.everything() if node not in guarded for place in node.given}
    numbers = _in_order([at for source, at in read if source == NUMBERS], computed, encoder)
    ids = [at for at, one in enumerate(encoder.categories) if (IDS, at) in read or one.rejects]
    if not numbers and not ids:
        # A row has to come from somewhere.
        numbers, ids = ([0], []) if encoder.numbers else ([], [0])
    places: dict[Place, Place] = {(NUMBERS, old): (NUMBERS, new) for new, old in enumerate(numbers)}
    places |= {(IDS, old): (IDS, new) for new, old in enumerate(ids)}
    for node in wiring.everything():
        node.given = [places.get(place, place) for place in node.given]
    users = wiring.users()
    for node in guarded:
        if node not in users:
            # Neighbours are looked at where they stand.
            node.given.sort(key=lambda place: place[1] if isinstance(place[0], int) else math.inf)
    return replace(
        encoder,
        numbers=[encoder.numbers[at] for at in numbers],
        categories=[encoder.categories[at] for at in ids],
    )


def _in_order(numbers: list[int], computed: set[Place], encoder: RowEncoder) -> list[int]:
    """The numbers that are read, so that the fewest are picked out of the middle of others."""
    numbers = sorted(numbers, key=lambda at: encoder.numbers[at])
    used = [at for at in numbers if (NUMBERS, at) in computed]
    # All columns as they were fitted are an array as it is given.
    if 2 * len(used) <= len(numbers) and [encoder.numbers[at] for at in numbers] == list(range(encoder.width)):
        return numbers
    return sorted(numbers, key=lambda at: ((NUMBERS, at) not in computed, at))
