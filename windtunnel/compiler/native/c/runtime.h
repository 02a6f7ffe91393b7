/*
 * A native program: steps that compute columns of float64 from columns of float64.
 *
 * The image of a program is one block of memory without pointers: a wt_program, its steps, and the tensors that they
 * read, named by their distance from the start of the image. Rows are computed in blocks. Each column of a block is
 * contiguous, so that a step reads the columns of earlier steps where they are.
 *
 * Nothing here allocates memory or keeps state: the caller brings the workspace of a call.
 */
#ifndef WINDTUNNEL_RUNTIME_H
#define WINDTUNNEL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* Hot functions are compiled for several processors, and the best one is chosen when the library is loaded. With
 * -DWT_WITHOUT_AVX512, processors that have it run what the others do. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(WT_PORTABLE)
#ifdef WT_WITHOUT_AVX512
#define WT_PROCESSORS __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define WT_PROCESSORS __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif
#else
#define WT_PROCESSORS
#endif

/* For functions that are compiled anew for each constant that they are called with. */
#ifdef __GNUC__
#define WT_INLINE static inline __attribute__((always_inline))
#else
#define WT_INLINE static inline
#endif

/* A file that holds all sources defines this as static: then the compiler leaves out what is not used. */
#ifndef WT_LINKAGE
#define WT_LINKAGE
#endif

#define WT_UNREAD UINT32_MAX

/* A number, a count, or the place of a tensor in the image. */
typedef union {
    double number;
    int64_t integer;
    uint64_t offset;
} wt_fact;

typedef struct {
    uint64_t operation; /* its place in operations.h */
    uint64_t inputs;    /* number of columns read */
    uint64_t outputs;   /* number of columns written */
    uint64_t columns;   /* offset of uint32_t [inputs + outputs]: where the columns are in the workspace */
    uint64_t facts;     /* offset of wt_fact [] */
} wt_step;

typedef struct {
    uint64_t size;          /* of the image in bytes */
    uint64_t numbers;       /* columns of the block of numbers */
    uint64_t ids;           /* columns of the block of ids */
    uint64_t input_columns; /* offset of uint32_t [numbers + ids]: their workspace columns, or WT_UNREAD */
    uint64_t outputs;
    uint64_t output_columns; /* offset of uint32_t [outputs] */
    uint64_t columns;        /* columns of the workspace */
    uint64_t block_rows;     /* rows computed at once */
    uint64_t scratch_bytes;  /* of the step that needs most, for block_rows rows */
    uint64_t step_count;
    uint64_t steps; /* offset of wt_step [step_count] */
} wt_program;

/* Rows of numbers and ids, and where their outputs go. Distances are counted in elements. */
typedef struct {
    size_t rows;
    const double *numbers;
    ptrdiff_t number_row, number_column; /* distance between rows, and between columns */
    const int64_t *ids;
    ptrdiff_t id_row, id_column;
    double *out; /* [rows, outputs], contiguous */
} wt_rows;

/* One step at work on a block of rows. */
typedef struct {
    const unsigned char *image;
    const wt_step *step;
    const wt_fact *facts;
    const uint32_t *columns;
    size_t rows;   /* at least 1 */
    size_t stride; /* distance between columns in the workspace, at least rows */
    double *workspace;
    void *scratch;
} wt_call;

static inline const double *wt_input(const wt_call *call, size_t column) {
    return call->workspace + call->columns[column] * call->stride;
}

static inline double *wt_output(const wt_call *call, size_t column) {
    return call->workspace + call->columns[call->step->inputs + column] * call->stride;
}

/* The tensor that a fact names; 64-byte aligned. */
static inline const void *wt_tensor(const wt_call *call, size_t fact) {
    return call->image + call->facts[fact].offset;
}

/* A number as a place among so many, 0 where it is none. */
static inline size_t wt_index(double number, size_t count) {
    return number >= 0 && number < (double)count ? (size_t)number : 0;
}

#define WT_NEAR_ZERO 1.0000000180025095e-35 /* the largest number that trees may count as 0: LightGBM's 1e-35f */

typedef void wt_operation(const wt_call *call);

#define WT_OPERATION(name) WT_LINKAGE wt_operation wt_##name;
#include "operations.h"
#undef WT_OPERATION

/* Bytes of a workspace that wt_run needs for so many rows. */
WT_LINKAGE size_t wt_workspace_bytes(const wt_program *program, size_t rows);

/* Compute the outputs of all rows. workspace: 64-byte aligned. */
WT_LINKAGE void wt_run(const wt_program *program, const wt_rows *rows, void *workspace);

#endif
