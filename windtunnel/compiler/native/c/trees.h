/* Hard trees: what the kernels of trees*.c share. */
#ifndef WINDTUNNEL_TREES_H
#define WINDTUNNEL_TREES_H

#include <math.h>

#include "runtime.h"

/* Functions in AVX-512's own words; the others compute the same bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(WT_PORTABLE)
#include <immintrin.h>
#define WT_AVX512 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")))
#ifdef WT_WITHOUT_AVX512
#define WT_HAS_AVX512 0
#else
#define WT_HAS_AVX512 (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
#endif

/* Functions in AVX2's words. */
#define WT_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define WT_HAS_AVX2 __builtin_cpu_supports("avx2")

/* Functions that permute 64 bytes at once. */
#define WT_BYTES __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vbmi")))
#define WT_HAS_BYTES (WT_HAS_AVX512 && __builtin_cpu_supports("avx512vbmi"))
#endif

/*
 * Nodes and leaves of all trees. A row goes from a node to follow, or to follow + 1 where the value of its column is
 * above split. A leaf follows to itself: its column is a value that is above nothing.
 */
typedef struct {
    union {
        double split; /* of a leaf: its value, or the number of its values */
        struct {
            uint32_t start, last; /* of a set of categories: where it starts, and its last place */
        } set;
    };
    uint32_t follow;
    uint32_t column; /* WT_TREE_SET is added for a set */
} wt_tree_node;

#define WT_TREE_SET UINT32_C(0x80000000)

/* A column of values: a feature, and what is compared of it, as WT_LOW and so on say. */
typedef struct {
    uint32_t feature;
    uint32_t reading;
} wt_tree_column;

/* LOW: NaN is -inf. HIGH: NaN is inf. FLAG: 1 for NaN, else 0. ZERO is added if numbers near 0 are missing too.
 * CODE: 0 for NaN, else 1 + the number of the category. BYTE is added to the place of a byte among the eight of a
 * column; thresholds on it are from 0 to below 255. */
enum { WT_LOW = 0, WT_HIGH = 1, WT_FLAG = 2, WT_ZERO = 3, WT_CODE = 6, WT_BYTE = 8 };

enum { WT_TREES_AT_ONCE = 8, WT_WORD_ROWS = 64, WT_MASK_ROWS = 512 };

/* The facts of the operation "trees". */
typedef struct {
    const wt_tree_column *columns;
    size_t column_count;
    int float32; /* whether the source rounds rows to float32 */
    const wt_tree_node *nodes;
    const unsigned char *set_goes_right; /* NULL if there is no set */
    const uint32_t *root;                /* [scores, trees], or [trees] where a leaf holds a value per score */
    size_t trees;                        /* of a score */
    /* The same trees sorted by depth, in groups of WT_TREES_AT_ONCE. */
    const uint32_t *group_root, *group_place, *group_depth;
    size_t groups;
    const double *vector; /* [leaves, scores], or NULL */
    const double *base;   /* [scores] */
    double divisor;
    size_t scores;
    size_t mask_rows;      /* from so many rows on masks pay */
    size_t successor_rows; /* up to so many rows tables of successors do; 0 without tables */
} wt_tree_facts;

/* The facts of masks follow from 17 on, those of successors from here. */
enum { WT_TREE_SUCCESSOR_FACTS = 30 };

WT_LINKAGE wt_tree_facts wt_tree_facts_of(const wt_call *call);

static inline double wt_tree_code(double x, int float32) {
    const double no_code = 2147483648.0;
    if (isnan(x)) return 0.0;
    /* XGBoost takes every negative number for no category, LightGBM cuts it to an integer first. */
    double whole = float32 ? floor(x) : trunc(x);
    return 1.0 + (whole >= 0.0 && whole < no_code ? whole : no_code);
}

static inline double wt_tree_value(double x, uint32_t reading, int float32) {
    if (float32) x = (double)(float)x;
    if (reading == WT_CODE) return wt_tree_code(x, float32);
    int missing = isnan(x) || (reading >= WT_ZERO && fabs(x) <= WT_NEAR_ZERO);
    if (reading % WT_ZERO == WT_FLAG) return missing ? 1.0 : 0.0;
    return missing ? (reading % WT_ZERO == WT_LOW ? -HUGE_VAL : HUGE_VAL) : x;
}

static inline const unsigned char *wt_tree_byte_column(const wt_call *call, const wt_tree_column *column) {
    return (const unsigned char *)wt_input(call, column->feature) + (column->reading - WT_BYTE) * call->stride;
}

/* The search of the rank of a value: how many thresholds it is above. */
typedef struct {
    double low, scale; /* of the cells, in which it starts */
    uint32_t last;     /* cell */
    uint32_t cell;     /* place of the first cell: how many thresholds are below it */
    uint32_t bound;    /* place of the first threshold; 2^steps numbers of infinity follow the last one */
    uint32_t steps;
} wt_tree_search;

/* Write the values of the columns of one row. */
WT_LINKAGE void wt_tree_row_values(const wt_call *call, int float32, const wt_tree_column *columns, size_t count, size_t row, double *to);

/* Columns of bytes: ranks among at most 255 thresholds of a column of values, or whether a category is in a set. */
typedef struct {
    size_t count;
    const double *low, *scale, *last;     /* of the search; last: cell, or category of a set */
    const uint32_t *cell, *bound, *steps;
    const uint32_t *value;                /* the column of values; those of one column follow each other */
    const uint32_t *set;                  /* place of the first category, or UINT32_MAX */
    const uint32_t *few;                  /* how many thresholds, if they are few and float32 holds them, else 0 */
    const uint16_t *cells;
    const double *bounds;
    const unsigned char *goes_right;      /* of the categories of the sets */
    uint32_t most_steps;
    int any_set;
} wt_tree_bytes;

enum { WT_TREE_BYTES_FACTS = 15 };

/* Those of a call, whose facts start at a fact. */
WT_LINKAGE wt_tree_bytes wt_tree_bytes_of(const wt_call *call, size_t fact);

static inline unsigned char wt_tree_in_set(const wt_tree_bytes *columns, size_t column, double code) {
    double last = columns->last[column];
    return columns->goes_right[columns->set[column] + (uint32_t)(code < last ? code : last)];
}

/* The bytes of one row. */
WT_LINKAGE void wt_tree_row_bytes(const wt_tree_bytes *columns, const double *values, unsigned char *bytes);

/* The ranks of the values of a column. */
WT_LINKAGE void wt_tree_ranks(const wt_tree_search *search, const uint16_t *cells, const double *bounds, const double *values, size_t count, uint32_t *ranks);

/* Write the values of a column, of count rows of a call from first on. */
WT_LINKAGE void wt_tree_values(const wt_call *call, int float32, const wt_tree_column *column, size_t first, size_t count, double *to);

/* Add the leaves of count rows of a call, from first on, to its outputs: by masks, see trees_masks.c. */
WT_LINKAGE void wt_tree_masks(const wt_call *call, const wt_tree_facts *facts, size_t first, size_t count);

/* The same by tables of successors, see trees_successors.c; 0 if the processor cannot. */
WT_LINKAGE int wt_tree_successors(const wt_call *call, const wt_tree_facts *facts, size_t first, size_t count);

/* The same with AVX2 alone; 0 also if there are too many columns of bytes. */
WT_LINKAGE int wt_tree_successors_avx2(const wt_call *call, const wt_tree_facts *facts, size_t first, size_t count);

#endif
