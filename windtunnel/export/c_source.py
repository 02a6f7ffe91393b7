"""The texts that a C file and its header are made of.

A C file holds, in this order: the C sources of the operations that its programs use (``runtime``), the programs
themselves (``image_table``), the vocabularies with the function that encodes a row (``encode_function``), a function
per method (``method_function``), messages and labels.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.compiler.native.build import SOURCES
from windtunnel.compiler.native.image import ALIGNMENT, Header
from windtunnel.encode import MISSING_ID, NONE_CATEGORY, CategoryColumn, RowEncoder
from windtunnel.export.columns import names
from windtunnel.program.head import Head
from windtunnel.program.program import NUMBERS
from windtunnel.program.translated import TranslatedPipeline

PRELUDE = """#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define WT_LINKAGE static
"""
LOOKUP = Path(__file__).with_name("c") / "lookup.c"
KEYWORDS = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float",
    "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof",
    "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
}  # fmt: skip
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
    width: int
    positions: bool
    rejects: dict[tuple[int, int], frozenset[str]]

    @property
    def checked(self) -> list[tuple[int, int]]:
        """The computed columns that rows are rejected for: further outputs of the program, behind ``width``."""
        return computed_places(self.rejects)


def computed_places(rejects: dict[tuple[int, int], frozenset[str]]) -> list[tuple[int, int]]:
    """The columns among them that steps compute, and the steps that reject rows."""
    return sorted(place for place, kinds in rejects.items() if place[0] != NUMBERS and kinds)


def row_fields(encoder: RowEncoder) -> dict[int, str]:
    """The name in the struct of each raw column."""
    columns, fields = encoder.used_columns(), dict[int, str]()
    for column, name in zip(columns, names(encoder, columns), strict=True):
        field = re.sub(r"\W", "_", name, flags=re.ASCII)
        field = f"x{field}" if not field or field[0].isdigit() else field
        field = f"{field}_" if field in KEYWORDS or keyword.iskeyword(field) else field
        fields[column] = field if field not in fields.values() else f"{field}_{column}"
    return fields


def _texts(encoder: RowEncoder) -> set[int]:
    return encoder.columns_by_kind()[1]


def workspace_bytes(encoder: RowEncoder, images: dict[str, bytes]) -> int:
    """The bytes that a call needs: encoded rows, raw scores, and the columns of the larger program."""
    headers = [Header.of(image) for image in images.values()]
    rows = max(header.block_rows for header in headers)
    width = len(encoder.numbers) + len(encoder.categories) + 2 * max(header.outputs for header in headers)
    return 8 * rows * width + max(header.workspace_bytes() for header in headers) + 3 * ALIGNMENT


def runtime(used: list[str]) -> str:
    """The C sources of the operations that a program uses, as one text; ``operations.h`` lists those alone."""
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
    return PRELUDE + "\n".join(map(with_headers, ["runtime.c", *files]))


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
    tables, lines = [], []
    for at, column in enumerate(encoder.numbers):
        value = f"row->{fields[column]}"
        lines.append(f"    numbers[{at}] = {f'(float){value}' if encoder.dtype == 'float32' else value};")
    for at, category in enumerate(encoder.categories):
        texts = category.column in _texts(encoder)
        value, known = f"row->{fields[category.column]}", category.vocabulary.id_by_value
        missing = ""
        if texts:
            ids = {text: id for text, id in known.items() if text != NONE_CATEGORY}
            rows = [f"{{{_quoted(text)}, {ids[text]}}}" for text in sorted(ids, key=_bytes)]
            missing = f"{known.get(NONE_CATEGORY, MISSING_ID)}, "
        else:
            rows = [f"{{{float(number).hex()}, {known[number]}}}" for number in sorted(known)]
            rows = [row.replace("inf", "INFINITY") for row in rows]
        kind = "text" if texts else "number"
        tables.append(f"static const wt_{kind} {scope}categories_{at}[] = {{{', '.join(rows) or '{0}'}}};")
        call = f"wt_{kind}_id({value}, {scope}categories_{at}, {len(rows)}, {_flags(category)}, {missing}ids + {at})"
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


def _to_output(output: Output, kind: str) -> str:
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
            for (size_t at = 0; at < {width}; at++) out[(first + row) * {width} + at] = ({kind}){source};
"""


def method_function(encoder: RowEncoder, prefix: str, output: Output, scope: str = "") -> str:
    """The function of a method."""
    numbers, ids, checked = len(encoder.numbers), len(encoder.categories), output.checked
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
    kind = "int32_t" if output.positions else "double"
    name = f"static int {scope}{output.method}" if scope else f"int {prefix}_{output.method}"
    return f"""
{name}(const {prefix}_row *rows, size_t count, {kind} *out, void *workspace) {{
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
{rejected}{_to_output(output, kind)}    }}
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


def label_table(head: Head, prefix: str) -> str:
    """The labels as C texts; empty where there are none."""
    if head.classes is None:
        return ""
    labels = ", ".join(_quoted(str(label)) for label in head.labels_in_order)
    return f"const char *const {prefix}_labels[] = {{{labels}}};\n"


def header_text(
    net: TranslatedPipeline, prefix: str, fields: dict[int, str], outputs: list[Output], workspace: int
) -> str:
    """The header, whose comment says how to compile and call the functions."""
    texts, upper = _texts(net.encoder), prefix.upper()
    columns = [
        f"    {'const char *' if column in texts else 'double '}{field}; /* {_comment(net, column)} */"
        for column, field in fields.items()
    ]
    widths = [f"{upper}_{output.method.upper()}_WIDTH = {output.width}" for output in outputs]
    codes = [f"{upper}_{name.upper()}" for name in ERRORS]
    functions = [
        f"int {prefix}_{output.method}(const {prefix}_row *rows, size_t count, "
        f"{'int32_t' if output.positions else 'double'} *out, void *workspace);"
        for output in outputs
    ]
    first = outputs[0]
    count = len(net.head.labels_in_order)
    labels = f"extern const char *const {prefix}_labels[{count}];" if count else ""
    about = "predict gives the position of the label among the labels. " if labels else ""
    return f"""/*
 * A pipeline in C, written by WindTunnel.
 *
 * An object file: "cc -O3 -ffp-contract=off -c FILE", linked with "-lm". A shared library:
 * "cc -O3 -ffp-contract=off -shared -fPIC FILE -lm". Fused products and sums would round otherwise than the source.
 *
 *     static unsigned char workspace[{upper}_WORKSPACE];
 *     {prefix}_row row = {{...}};           NAN is a missing number, NULL a missing text; texts are UTF-8
 *     {"int32_t" if first.positions else "double"} out[{upper}_{first.method.upper()}_WIDTH];
 *     int error = {prefix}_{first.method}(&row, 1, out, workspace);
 *     if (error != {upper}_OK) puts({prefix}_message(error));
 *
 * out holds WIDTH values per row. {about}Booleans are 1 and 0.
 * Nothing is allocated, and no state is kept: threads may call at once, each with a workspace of its own. After an
 * error, out holds nothing of use. Compile with -DWT_PORTABLE where the C library has no indirect functions (musl).
 */
#ifndef WINDTUNNEL_{upper}_H
#define WINDTUNNEL_{upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {{
{chr(10).join(columns) or "    char unused;"}
}} {prefix}_row;

enum {{ {", ".join(codes)} }};
enum {{ {", ".join(widths)} }};
enum {{ {upper}_WORKSPACE = {workspace} }};

{chr(10).join(functions)}
const char *{prefix}_message(int error);
{labels}

#ifdef __cplusplus
}}
#endif

#endif
"""


def _comment(net: TranslatedPipeline, column: int) -> str:
    return net.encoder.column_name(column).replace("*/", "* /")
