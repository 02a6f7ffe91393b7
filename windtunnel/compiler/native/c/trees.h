/* Hard trees: what the kernels of trees*.c share. */
#ifndef WINDTUNNEL_TREES_H
#define WINDTUNNEL_TREES_H

#include "runtime.h"

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

/* For functions that are compiled anew for each constant that they are called with. */
#ifdef __GNUC__
#define WT_INLINE static inline __attribute__((always_inline))
#else
#define WT_INLINE static inline
#endif

#define WT_TREE_SET UINT32_C(0x80000000)

/* A column of values: a feature, and what is compared of it, as WT_LOW and so on say. */
typedef struct {
    uint32_t feature;
    uint32_t reading;
} wt_tree_column;

/* LOW: NaN is -inf. HIGH: NaN is inf. FLAG: 1 for NaN, else 0. ZERO is added if numbers near 0 are missing too.
 * CODE: 0 for NaN, else 1 + the number of the category. */
enum { WT_LOW = 0, WT_HIGH = 1, WT_FLAG = 2, WT_ZERO = 3, WT_CODE = 6 };

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
    size_t mask_rows; /* fewer rows walk */
} wt_tree_facts;

wt_tree_facts wt_tree_facts_of(const wt_call *call);

/* Write the values of a column, of count rows of a call from first on. */
WT_LINKAGE void wt_tree_values(const wt_call *call, const wt_tree_facts *facts, const wt_tree_column *column, size_t first, size_t count, double *to);

/* Add the leaves of count rows of a call, from first on, to its outputs: by masks, see trees_masks.c. */
WT_LINKAGE void wt_tree_masks(const wt_call *call, const wt_tree_facts *facts, size_t first, size_t count);

#endif
