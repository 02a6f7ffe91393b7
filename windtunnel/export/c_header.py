"""The header of a C file: the struct of a row, the functions, and a comment that says how to use them."""

from __future__ import annotations

import keyword
import re
from itertools import chain, count

from windtunnel.encode import RowEncoder
from windtunnel.export.c_source import ERRORS, Output
from windtunnel.export.columns import names, raw_columns
from windtunnel.program.translated import TranslatedPipeline

KEYWORDS = {
    # of C
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float",
    "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof",
    "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
    # of C23 and C++, whose compilers read the header too
    "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t", "char8_t",
    "class", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constexpr",
    "constinit", "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable", "namespace",
    "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
    "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this", "thread_local", "throw", "true",
    "try", "typeid", "typename", "typeof", "typeof_unqual", "using", "virtual", "wchar_t", "xor", "xor_eq",
}  # fmt: skip
MACROS = re.compile(
    r"NULL|NAN|INFINITY|HUGE_VAL[FL]?|EOF|BUFSIZ|EDOM|EILSEQ|ERANGE|errno|stdin|stdout|stderr|assert|offsetof"
    r"|linux|unix|i386|FP_(INFINITE|NAN|NORMAL|SUBNORMAL|ZERO)|MATH_ERR(NO|EXCEPT)|EXIT_(SUCCESS|FAILURE)"
    r"|M_(E|LOG2E|LOG10E|LN2|LN10|PI|PI_2|PI_4|1_PI|2_PI|2_SQRTPI|SQRT2|SQRT1_2)"
    r"|(U?INT(PTR|MAX|(_LEAST|_FAST)?\d+)?|[SU]?CHAR|U?(SHRT|LONG|LLONG)|SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC|RAND|FLT|L?DBL)"
    r"_(MAX|MIN)"
)
"""Names that C's headers and compilers may define as macros."""
RESERVED = re.compile(r"__|_[A-Z]")
"""The beginnings of names that belong to the compiler."""


def row_fields(encoder: RowEncoder) -> dict[int, str]:
    """The name in the struct of each raw column."""
    columns = encoder.used_columns()
    plain = {column: (name, _field(name)) for column, name in zip(columns, names(encoder, columns), strict=True)}
    # A name that is a member as it is keeps it.
    fields = {column: field for column, (name, field) in plain.items() if field == name}
    for column in [column for column in columns if column not in fields]:
        field = plain[column][1]
        numbered = (f"{field}_{number}" for number in count(2))
        fields[column] = next(free for free in chain([field], numbered) if free not in fields.values())
    return {column: fields[column] for column in columns}


def _field(name: str) -> str:
    """A name of a column as a name in C."""
    field = re.sub(r"\W", "_", name, flags=re.ASCII)
    field = f"x{field}" if not field or field[0].isdigit() else field
    taken = field in KEYWORDS or keyword.iskeyword(field) or MACROS.fullmatch(field) or RESERVED.match(field)
    return f"x{field}" if taken and field.startswith("_") else f"{field}_" if taken else field


def header_text(
    net: TranslatedPipeline, prefix: str, fields: dict[int, str], outputs: list[Output], workspace: int
) -> str:
    """The header; ``net`` says what the columns and labels are."""
    upper, count = prefix.upper(), len(net.head.labels_in_order)
    widths = [f"{upper}_{output.method.upper()}_WIDTH = {output.width}" for output in outputs]
    codes = [f"{upper}_{name.upper()}" for name in ERRORS]
    functions = [
        f"int {prefix}_{output.method}(const {prefix}_row *rows, size_t count, {output.c_type} *out, void *workspace);"
        for output in outputs
    ]
    labels = f"extern const char *const {prefix}_labels[{count}];" if count else ""
    return f"""{_usage(prefix, outputs[0], has_labels=count > 0)}#ifndef WINDTUNNEL_{upper}_H
#define WINDTUNNEL_{upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {{
{_members(net.encoder, fields)}
}} {prefix}_row;

enum {{ {", ".join(codes)} }};
enum {{ {", ".join(widths)} }};
enum {{ {upper}_WORKSPACE = {workspace} }};

{chr(10).join(functions)}
const char *{prefix}_message(int error);
extern const char *const {prefix}_facts;
{labels}

#ifdef __cplusplus
}}
#endif

#endif
"""


def _usage(prefix: str, output: Output, *, has_labels: bool) -> str:
    """The comment that says how to compile the file and to call a function."""
    upper = prefix.upper()
    positions = "predict gives the position of the label among the labels. " if has_labels else ""
    return f"""/*
 * A pipeline in C, written by WindTunnel.
 *
 * An object file: "cc -O3 -ffp-contract=off -c FILE", linked with "-lm". A shared library:
 * "cc -O3 -ffp-contract=off -shared -fPIC FILE -lm". Fused products and sums would round otherwise than the source.
 *
 *     static unsigned char workspace[{upper}_WORKSPACE];
 *     {prefix}_row row = {{...}};           NAN is a missing number, NULL a missing text; texts are UTF-8
 *     {output.c_type} out[{upper}_{output.method.upper()}_WIDTH];
 *     int error = {prefix}_{output.method}(&row, 1, out, workspace);
 *     if (error != {upper}_OK) puts({prefix}_message(error));
 *
 * out holds WIDTH values per row. {positions}Booleans are 1 and 0.
 * Nothing is allocated, and no state is kept: threads may call at once, each with a workspace of its own. After an
 * error, out holds nothing of use. Compile with -DWT_PORTABLE where the C library has no indirect functions (musl).
 * WindTunnel's serving.py reads {prefix}_facts, which is JSON, and calls a shared library from Python.
 */
"""


def _members(encoder: RowEncoder, fields: dict[int, str]) -> str:
    """The members of the struct of a row, each with the name of its column in a comment."""
    texts = {*raw_columns(encoder)[1]}
    members = []
    for column, field in fields.items():
        name = encoder.column_name(column).replace("*/", "* /").replace("/*", "/ *")
        members.append(f"    {'const char *' if column in texts else 'double '}{field}; /* {name} */")
    return "\n".join(members) or "    char unused;"
