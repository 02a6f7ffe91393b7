"""A whole pipeline as one C file and its header: raw columns to predictions, with libc and libm alone."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from windtunnel.atomic_write import replacing
from windtunnel.compiler.native.build import SOURCES
from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.compiler.native.head import finish
from windtunnel.compiler.native.image import ALIGNMENT, Header, ImageWriter, operations_of, renumbered
from windtunnel.compiler.native.lowering import NotNative
from windtunnel.encode import MISSING_ID, NONE_CATEGORY, CategoryColumn, RowEncoder
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.columns import names
from windtunnel.export.limits import check
from windtunnel.program.head import Head
from windtunnel.program.non_finite import slot_guards
from windtunnel.program.program import NUMBERS
from windtunnel.program.translated import TranslatedPipeline

PRELUDE = """#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define WT_LINKAGE static
"""
METHODS = ("predict", "predict_proba", "decision_function", "score_samples", "transform")
LOOKUP, CASCADE = (Path(__file__).with_name("c") / name for name in ("lookup.c", "cascade.c"))
CASCADE_BLOCK = 256
"""Rows whose probabilities ``predict`` of a cascade holds at once."""
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
    """What a method computes: the program of the scores or of its own step, and that of the head behind it."""

    method: str
    program: str
    head: str | None
    width: int
    positions: bool
    rejects: dict[tuple[int, int], frozenset[str]]

    @property
    def checked(self) -> list[tuple[int, int]]:
        """The computed columns that rows are rejected for: further outputs of the program, behind ``width``."""
        return _computed(self.rejects)


def export(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write a translation as C: ``path`` and a header next to it, whose comment says how to call and compile it.

    A row is a struct with a ``double`` per column of numbers, NaN where missing, and a text in UTF-8 per column of
    texts, NULL where missing. There is a function per method of the source. They allocate nothing and keep no state,
    and give an error code where the methods of the translation raise ``BadInput``. The files need a C11 compiler and a
    machine that stores the least byte first.

    Parameters
    ----------
    net : TranslatedPipeline
        Left as it is.
    path : path
        Its name without the suffix starts the names of the functions.

    Raises
    ------
    UnfaithfulOption
        A limit of ``windtunnel.export.limits``, a step without a native form, or a step that rejects rows for what it
        computes.
    InvalidOption
        There is no C compiler: writing the file takes the native library.
    """
    check(net, "c")
    images, outputs = _programs(net)
    prefix, fields = _prefix(path), _fields(net.encoder)
    functions = [
        _encoding(net.encoder, prefix, fields),
        *[_function(net.encoder, prefix, output) for output in outputs],
    ]
    _write(path, net, images, outputs, functions, _workspace(net.encoder, images))


def export_cascade(
    small: TranslatedPipeline, full: TranslatedPipeline, confidence: float, path: str | PathLike[str]
) -> None:
    """Write a cascade as C, called like a translation: each row goes to the full model unless the small one is sure.

    Parameters
    ----------
    small, full : TranslatedPipeline
        Classifiers with the same classes.
    confidence : float
        The largest probability from which on the small model settles a row.
    path : path

    Raises
    ------
    UnfaithfulOption, InvalidOption
        See ``export``; for either model.
    """
    prefix, fields = _prefix(path), _fields(full.encoder)
    images: dict[str, bytes] = {}
    functions, workspaces = [], []
    for scope, net in (("small_", small), ("full_", full)):
        check(net, "c")
        of_net, (output,) = _programs(net, ("predict_proba",), scope)
        images |= of_net
        functions += [_encoding(net.encoder, prefix, fields, scope), _function(net.encoder, prefix, output, scope)]
        workspaces.append(_workspace(net.encoder, of_net))
    outputs = [replace(output, method="predict", width=1, positions=True), output]
    block = CASCADE_BLOCK * output.width
    functions += [
        f"enum {{ CASCADE_WIDTH = {output.width}, CASCADE_BLOCK = {CASCADE_BLOCK} }};",
        f"static const double cascade_confidence = {confidence.hex()};",
        CASCADE.read_text().replace("PREFIX", prefix),
    ]
    _write(path, full, images, outputs, functions, max(workspaces) + 8 * block + ALIGNMENT)


def _prefix(path: str | PathLike[str]) -> str:
    """The start of the names of the functions."""
    name = Path(path).stem
    return re.sub(r"\W", "_", f"m{name}" if name[:1].isdigit() else name, flags=re.ASCII)


def _write(
    path: str | PathLike[str],
    net: TranslatedPipeline,
    images: dict[str, bytes],
    outputs: list[Output],
    functions: list[str],
    workspace: int,
) -> None:
    """Write the C file and its header; ``net`` says what the columns and labels are."""
    prefix = _prefix(path)
    used = sorted({operation for image in images.values() for operation in operations_of(image)})
    source = [
        f'#include "{Path(path).stem}.h"\n',
        _runtime(used),
        "enum {" + ", ".join(f" WT_{name.upper()}" for name in ERRORS) + " };\n",
        LOOKUP.read_text(),
        *[f"{_table(name, renumbered(image, used))}\n" for name, image in images.items()],
        *functions,
        _messages(prefix),
        _labels(net.head, prefix),
    ]
    header = _header(net, prefix, _fields(net.encoder), outputs, workspace)
    with replacing(Path(path).with_suffix(".h")) as header_file, replacing(path) as source_file:
        header_file.write_bytes(header.encode())
        source_file.write_bytes("\n".join(source).encode())


def _programs(
    net: TranslatedPipeline, methods: Sequence[str] = METHODS, scope: str = ""
) -> tuple[dict[str, bytes], list[Output]]:
    """The images of the programs by name, and what each method computes with them; ``scope`` starts the names."""
    engine = NativeEngine(net.program, net.encoder)
    engine.prepared()
    images: dict[str, bytes] = {}
    outputs = []
    for method in methods:
        if method not in net.head.methods:
            continue
        has_step = method in net.program.method_steps
        part = engine.whole(name := method if has_step else "scores")
        if part is None:
            raise UnfaithfulOption(f"{_missing(engine, name)} have no C form. Choose another format.")
        ((_, slot),) = part.outputs
        rejects = slot_guards(net.program, method)
        try:
            images[f"{scope}{name}"] = engine.image(name, _computed(rejects))
        except NotNative as error:
            raise UnfaithfulOption(
                f"{method} rejects rows for what a step computes, which has no C form ({error}). Choose "
                "format='torchscript' or 'onnx'."
            ) from error
        image = ImageWriter(slot.width, 0)
        columns = image.numbers if has_step else finish(image, net.head, method, image.numbers)
        linked = None if columns == image.numbers else f"{scope}{method}_head"
        if linked is not None:
            images[linked] = image.image(columns)
        positions = method == "predict" and net.head.classes is not None
        outputs.append(Output(method, f"{scope}{name}", linked, len(columns), positions, rejects))
    return images, outputs


def _missing(engine: NativeEngine, method: str) -> str:
    steps = [f"{name!r} ({reason})" for name, reason in engine.torch_steps.items()]
    return "the steps " + ", ".join(steps) if steps else f"the steps of {method}"


def _computed(rejects: dict[tuple[int, int], frozenset[str]]) -> list[tuple[int, int]]:
    """The columns among them that steps compute, and the steps that reject rows."""
    return sorted(place for place, kinds in rejects.items() if place[0] != NUMBERS and kinds)


def _fields(encoder: RowEncoder) -> dict[int, str]:
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


def _workspace(encoder: RowEncoder, images: dict[str, bytes]) -> int:
    """The bytes that a call needs: encoded rows, raw scores, and the columns of the larger program."""
    headers = [Header.of(image) for image in images.values()]
    rows = max(header.block_rows for header in headers)
    width = len(encoder.numbers) + len(encoder.categories) + 2 * max(header.outputs for header in headers)
    return 8 * rows * width + max(header.workspace_bytes() for header in headers) + 3 * ALIGNMENT


def _runtime(used: list[str]) -> str:
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


def _table(name: str, image: bytes) -> str:
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


def _encoding(encoder: RowEncoder, prefix: str, fields: dict[int, str], scope: str = "") -> str:
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
    """From the scores of a block to the output."""
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


def _function(encoder: RowEncoder, prefix: str, output: Output, scope: str = "") -> str:
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


def _messages(prefix: str) -> str:
    texts = ", ".join(map(_quoted, ERRORS.values()))
    return (
        f"const char *{prefix}_message(int error) {{\n    static const char *const messages[] = {{{texts}}};\n"
        f'    return error >= 0 && error < {len(ERRORS)} ? messages[error] : "no error code";\n}}\n'
    )


def _labels(head: Head, prefix: str) -> str:
    if head.classes is None:
        return ""
    labels = ", ".join(_quoted(str(label)) for label in head.labels_in_order)
    return f"const char *const {prefix}_labels[] = {{{labels}}};\n"


def _header(net: TranslatedPipeline, prefix: str, fields: dict[int, str], outputs: list[Output], workspace: int) -> str:
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
