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

/* Which numbers rows may have. Ordinary ones are neither missing nor so large that a product of a step overflows. */
typedef enum { ANY_NUMBERS, ORDINARY_NUMBERS, ORDINARY_OR_MISSING } accepted_numbers;

/* Compute the outputs of rows, without the GIL if there are several. At most so many threads share the rows, as many as
 * their work keeps busy. Gives 1 where a number is not accepted, which leaves the outputs undefined; -1 with an exception
 * if there is no memory. */
int program_compute(Program *program, const wt_rows *rows, size_t threads, accepted_numbers accepted);

extern PyType_Spec scorer_spec, vocabulary_spec;

#endif
