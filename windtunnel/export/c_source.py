"""The texts that a C file is made of.

A C file holds, in this order: the C sources of the operations that its programs use (``runtime``), the programs
themselves (``image_table``), the vocabularies with the function that encodes a row (``encode_function``), a function
per method (``method_function``), messages and labels.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.compiler.native.build import SOURCES
from windtunnel.compiler.native.image import ALIGNMENT, Header
from windtunnel.encode import CategoryColumn, RowEncoder
from windtunnel.export.columns import raw_columns
from windtunnel.program.head import Head
from windtunnel.program.program import NUMBERS

PRELUDE = """#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define WT_LINKAGE static
"""
OPERATION = re.compile(r"\bvoid wt_(\w+)\(const wt_call \*call\) \{")
CLONED = re.compile(r"^WT_PROCESSORS .*?(\w+)\(", re.MULTILINE)
"""Functions that are compiled for several processors. GCC makes them global in spite of a static prototype."""
LOOKUP = Path(__file__).with_name("c") / "lookup.c"
ERRORS = {
    "ok": "",
    "no_rows": "got 0 rows; at least 1 is needed",
    "rejected_number": "a number is missing, infinite or beyond float32 where a step does not take it",
    "unknown_category": "a category was not there in fitting, and is rejected",
    "missing_category": "a category is missing, which is rejected",
    "infinite_category": "a category is an infinite number, which is rejected",
    "fraction": "a category is a number that is not whole, which is rejected",
}
"""The names of the error codes, from 0 up, and their messages."""


@dataclass(frozen=True)
class Output:
    """The programs of a method: that of the scores or of its own step, and that of the head behind it."""

    method: str
    program: str
    head: str | None
    width: int  # values per row
    positions: bool  # whether they are positions of labels
    rejects: dict[tuple[int, int], frozenset[str]]  # see ``slot_guards``

    @property
    def c_type(self) -> str:
        """The type of a value."""
        return "int32_t" if self.positions else "double"


def computed_places(rejects: dict[tuple[int, int], frozenset[str]]) -> list[tuple[int, int]]:
    """The places that are no raw columns: columns that steps compute, and steps that reject rows."""
    return sorted(place for place, kinds in rejects.items() if place[0] != NUMBERS and kinds)


def workspace_bytes(encoder: RowEncoder, images: dict[str, bytes]) -> int:
    """The bytes that a call needs: encoded rows, raw scores, and the columns of the larger program."""
    headers = [Header.of(image) for image in images.values()]
    rows = max(header.block_rows for header in headers)
    width = len(encoder.numbers) + len(encoder.categories) + 2 * max(header.outputs for header in headers)
    return 8 * rows * width + max(header.workspace_bytes() for header in headers) + 3 * ALIGNMENT


def runtime(used: list[str], prefix: str) -> str:
    """The C sources of the operations that a program uses, as one text; ``operations.h`` lists those alone.

    No function has the name of one in another model's file, which may be of another version of the library.
    """
    texts = {path.name: path.read_text() for path in sorted(SOURCES.iterdir())}
    texts["operations.h"] = "".join(f"WT_OPERATION({operation})\n" for operation in used)
    written: set[str] = set()

    def with_headers(name: str) -> str:
        if name in written:
            return ""
        written.update({name} - {"operations.h"})
        return re.sub(r'^#include "(.+)"\n', lambda line: with_headers(line[1]), texts[name], flags=re.M)

    families = {
        Path(name).stem.split("_")[0]
        for name, text in texts.items()
        for operation in used
        if name.endswith(".c") and f"void wt_{operation}(" in text
    }
    # trees_masks.c and the like belong to trees.c.
    files = [name for name in texts if name.endswith(".c") and any(map(name.startswith, families))]
    cloned = sorted({name for file in files for name in CLONED.findall(texts[file])})
    renamed = "".join(f"#define {name} {prefix}_{name}\n" for name in cloned)
    # Files hold operations that are not used too; a static prototype makes them static.
    others = sorted({name for file in files for name in OPERATION.findall(texts[file])} - {*used})
    prototypes = "".join(f"WT_LINKAGE wt_operation wt_{name};\n" for name in others)
    return PRELUDE + renamed + "\n".join([with_headers("runtime.c"), prototypes, *map(with_headers, files)])


def image_table(name: str, image: bytes) -> str:
    """The image of a program as a C array."""
    words = np.frombuffer(image.ljust(-(-len(image) // 8) * 8, b"\0"), np.uint64).tolist()
    lines = [", ".join(map(hex, words[start : start + 6])) for start in range(0, len(words), 6)]
    body = ",\n".join(lines)
    return f"_Alignas(64) static const uint64_t {name}_image[] = {{\n{body}\n}};\n"


def _quoted(text: str) -> str:
    """A C string of UTF-8, its bytes beyond ASCII as octal escapes."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
    shown = [plain.get(b, chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode("utf-8", "surrogatepass")]
    return f'"{"".join(shown)}"'


def _flags(category: CategoryColumn) -> str:
    taken = {
        "UNKNOWN": not category.rejects_unknown,
        "MISSING": not category.rejects_missing,
        "INFINITE": not category.rejects_infinite,
        "FRACTIONS": not category.rejects_fractions,
    }
    return " | ".join(f"WT_TAKES_{name}" for name, taken in taken.items() if taken) or "0"


def encode_function(encoder: RowEncoder, prefix: str, fields: dict[int, str], scope: str = "") -> str:
    """The vocabularies, and the function that encodes a row."""
    tables, lines, text_columns = [], [], {*raw_columns(encoder)[1]}
    for at, column in enumerate(encoder.numbers):
        value = f"row->{fields[column]}"
        lines.append(f"    numbers[{at}] = {f'(float){value}' if encoder.dtype == 'float32' else value};")
    for at, category in enumerate(encoder.categories):
        texts = category.column in text_columns
        value, known = f"row->{fields[category.column]}", category.vocabulary.id_by_value
        if texts:
            rows = [f"{{{_quoted(text)}, {known[text]}}}" for text in sorted(known, key=_bytes)]
        else:
            rows = [f"{{{float(number).hex()}, {known[number]}}}" for number in sorted(known)]
            rows = [row.replace("inf", "INFINITY") for row in rows]
        kind = "text" if texts else "number"
        tables.append(f"static const wt_{kind} {scope}categories_{at}[] = {{{', '.join(rows) or '{0}'}}};")
        call = f"wt_{kind}_id({value}, {scope}categories_{at}, {len(rows)}, {_flags(category)}, ids + {at})"
        lines.append(f"    if ((error = {call}) != WT_OK) return error;")
    body = "\n".join(lines)
    return (
        "\n".join(tables) + f"\n\nstatic int {scope}encode(const {prefix}_row *row, double *numbers, int64_t *ids) {{\n"
        f"    int error = WT_OK;\n    (void)row, (void)numbers, (void)ids;\n{body}\n    return error;\n}}\n"
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _checks(values: dict[str, frozenset[str]]) -> str:
    """Lines that return an error if the source rejects one of these values."""
    kinds = {"nan": "WT_REJECTS_NAN", "inf": "WT_REJECTS_INFINITE", "huge": "WT_REJECTS_HUGE"}
    kinds["outside"] = "WT_REJECTS_OUTSIDE"
    return "".join(
        f"            if (wt_rejected({value}, {' | '.join(kinds[kind] for kind in sorted(rejected))})) "
        "return WT_REJECTED_NUMBER;\n"
        for value, rejected in values.items()
        if rejected
    )


def _to_output(output: Output) -> str:
    """Lines that turn the scores of a block into the output."""
    width, source = output.width, "scores[row * outputs + at]"
    linked = ""
    if output.head is not None:
        source = f"labels[row * {width} + at]"
        linked = f"""        const wt_program *head = (const wt_program *)(const void *){output.head}_image;
        wt_rows linked = {{.rows = some, .numbers = scores, .number_column = 1, .out = labels}};
        linked.number_row = (ptrdiff_t)outputs;
        wt_run(head, &linked, space);
"""
    return f"""{linked}        for (size_t row = 0; row < some; row++)
            for (size_t at = 0; at < {width}; at++) out[(first + row) * {width} + at] = ({output.c_type}){source};
"""


def method_function(encoder: RowEncoder, prefix: str, output: Output, scope: str = "") -> str:
    """The function of a method."""
    numbers, ids = len(encoder.numbers), len(encoder.categories)
    checked = computed_places(output.rejects)  # further outputs of the program, behind its scores
    in_rows = {
        f"numbers[row * {numbers} + {column}]": kinds
        for (slot, column), kinds in sorted(output.rejects.items())
        if slot == NUMBERS
    }
    computed = {
        f"scores[row * outputs + outputs - {len(checked) - at}]": output.rejects[place]
        for at, place in enumerate(checked)
    }
    rejected = (
        f"        for (size_t row = 0; row < some; row++) {{\n{_checks(computed)}        }}\n" if computed else ""
    )
    name = f"static int {scope}{output.method}" if scope else f"int {prefix}_{output.method}"
    return f"""
{name}(const {prefix}_row *rows, size_t count, {output.c_type} *out, void *workspace) {{
    const wt_program *program = (const wt_program *)(const void *){output.program}_image;
    size_t block = (size_t)program->block_rows, outputs = (size_t)program->outputs;
    double *numbers = (double *)(((uintptr_t)workspace + 63) / 64 * 64);
    int64_t *ids = (int64_t *)(void *)(numbers + block * {numbers});
    double *scores = (double *)(void *)(ids + block * {ids});
    double *labels = scores + block * outputs;
    unsigned char *space = (unsigned char *)(((uintptr_t)(labels + block * {output.width}) + 63) / 64 * 64);
    if (count == 0) return WT_NO_ROWS;
    for (size_t first = 0; first < count; first += block) {{
        size_t some = count - first < block ? count - first : block;
        for (size_t row = 0; row < some; row++) {{
            int error = {scope}encode(rows + first + row, numbers + row * {numbers}, ids + row * {ids});
            if (error != WT_OK) return error;
{_checks(in_rows)}        }}
        wt_rows encoded = {{.rows = some, .numbers = numbers, .number_row = {numbers}, .number_column = 1}};
        encoded.ids = ids;
        encoded.id_row = {ids};
        encoded.id_column = 1;
        encoded.out = scores;
        wt_run(program, &encoded, space);
{rejected}{_to_output(output)}    }}
    return WT_OK;
}}
"""


def message_function(prefix: str) -> str:
    """The function that gives the message of an error code."""
    texts = ", ".join(map(_quoted, ERRORS.values()))
    return (
        f"const char *{prefix}_message(int error) {{\n    static const char *const messages[] = {{{texts}}};\n"
        f'    return error >= 0 && error < {len(ERRORS)} ? messages[error] : "no error code";\n}}\n'
    )


def facts_text(facts: dict[str, Any], prefix: str) -> str:
    """The facts that ``serving`` reads, as JSON in a C text."""
    return f"const char *const {prefix}_facts = {_quoted(json.dumps(facts))};\n"


def label_table(head: Head, prefix: str) -> str:
    """The labels as C texts; empty where there are none."""
    if head.classes is None:
        return ""
    labels = ", ".join(_quoted(str(label)) for label in head.labels_in_order)
    return f"const char *const {prefix}_labels[] = {{{labels}}};\n"
