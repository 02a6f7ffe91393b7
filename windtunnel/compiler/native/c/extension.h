/* What the files of the Python extension share. */
#ifndef WINDTUNNEL_EXTENSION_H
#define WINDTUNNEL_EXTENSION_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime.h"

struct workspace;

typedef struct {
    PyObject_HEAD
    wt_program *image;
    struct workspace *free; /* workspaces that no call uses; guarded by the GIL, like the next field */
    double row_seconds;     /* of one thread in the last call with many rows, or 0 */
} Program;

/* Compute the outputs of rows, without the GIL if there are several; -1 with an exception if there is no memory. At most
 * so many threads share the rows, as many as their work keeps busy. */
int program_compute(Program *program, const wt_rows *rows, size_t threads);

extern PyType_Spec scorer_spec, vocabulary_spec;

#endif
