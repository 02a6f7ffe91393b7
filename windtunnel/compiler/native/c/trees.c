/*
 * Hard trees: the choice of a kernel, and the kernel that walks. All kernels give the same bits.
 *
 * - Few rows take tables of successors (trees_successors.c): trees of up to 256 leaves, AVX-512 with VBMI, or AVX2.
 * - 16 rows and more take masks (trees_masks.c): trees of up to 256 leaves.
 * - All others walk: eight trees side by side for a row, or eight rows side by side for a tree.
 *
 * Oblivious trees are an operation of their own (trees_oblivious.c). The lowering (tree_masks.py, successors.py) decides
 * which kernels a model can take, and for how many rows each pays.
 */
#include "trees.h"

/* Few rows walk one by one. Medium ones take masks of one word: 64 rows take a quarter of the time of 512. */
enum { FEW_ROWS = 8, MEDIUM_ROWS = 192 };

wt_tree_facts wt_tree_facts_of(const wt_call *call) {
    const wt_fact *fact = call->facts;
    wt_tree_facts facts = {
        .columns = wt_tensor(call, 0),
        .column_count = (size_t)fact[1].integer,
        .float32 = fact[2].integer != 0,
        .nodes = wt_tensor(call, 3),
        .set_goes_right = fact[5].integer != 0 ? wt_tensor(call, 4) : NULL,
        .root = wt_tensor(call, 6),
        .trees = (size_t)fact[7].integer,
        .group_root = wt_tensor(call, 8),
        .group_place = wt_tensor(call, 9),
        .group_depth = wt_tensor(call, 10),
        .groups = (size_t)fact[11].integer,
        .vector = fact[13].integer != 0 ? wt_tensor(call, 12) : NULL,
        .base = wt_tensor(call, 14),
        .divisor = fact[15].number,
        .scores = call->step->outputs,
        .mask_rows = (size_t)fact[16].integer,
        .successor_rows = (size_t)fact[WT_TREE_SUCCESSOR_FACTS].integer,
    };
    return facts;
}

WT_PROCESSORS void wt_tree_values(const wt_call *call, int float32, const wt_tree_column *column, size_t first, size_t count, double *to) {
    if (column->reading >= WT_BYTE) {
        const unsigned char *bytes = wt_tree_byte_column(call, column) + first;
        for (size_t row = 0; row < count; row++) to[row] = bytes[row];
        return;
    }
    const double *x = wt_input(call, column->feature) + first;
    switch (column->reading) { /* so that each loop is that of one reading */
#define READ(reading) \
    case reading: \
        for (size_t row = 0; row < count; row++) to[row] = wt_tree_value(x[row], reading, float32); \
        break;
        READ(WT_LOW)
        READ(WT_HIGH)
        READ(WT_FLAG)
        READ(WT_LOW + WT_ZERO)
        READ(WT_HIGH + WT_ZERO)
        READ(WT_FLAG + WT_ZERO)
        READ(WT_CODE)
#undef READ
    }
}

void wt_tree_row_values(const wt_call *call, int float32, const wt_tree_column *columns, size_t count, size_t row, double *to) {
    for (size_t column = 0; column < count; column++)
        if (columns[column].reading >= WT_BYTE)
            to[column] = wt_tree_byte_column(call, columns + column)[row];
        else
            to[column] = wt_tree_value(wt_input(call, columns[column].feature)[row], columns[column].reading, float32);
}

/* Where a row goes from a node. values: of the row, the columns `step` apart. */
static inline uint32_t tree_next(const wt_tree_node *node, const double *values, size_t step, const unsigned char *sets) {
    if (sets != NULL && (node->column & WT_TREE_SET) != 0) {
        double code = values[(node->column & ~WT_TREE_SET) * step], last = (double)node->set.last;
        return node->follow + sets[node->set.start + (uint32_t)(code < last ? code : last)];
    }
    return node->follow + (values[node->column * step] > node->split);
}

/* The leaves of one row in all trees, several trees at once: their steps wait for memory side by side. The row leaves a group
 * as soon as it is at a leaf in all of its trees, mostly long before the deepest leaf. */
static inline void tree_walk_row(const wt_tree_facts *facts, const double *values, uint32_t *leaves, const unsigned char *sets) {
    const wt_tree_node *nodes = facts->nodes;
    for (size_t group = 0; group < facts->groups; group++) {
        const uint32_t *root = facts->group_root + group * WT_TREES_AT_ONCE;
        const uint32_t *place = facts->group_place + group * WT_TREES_AT_ONCE;
        uint32_t at[WT_TREES_AT_ONCE];
        for (size_t tree = 0; tree < WT_TREES_AT_ONCE; tree++) at[tree] = root[tree];
        for (uint32_t level = facts->group_depth[group], moved = 1; level > 0 && moved != 0; level--) {
            moved = 0;
            for (size_t tree = 0; tree < WT_TREES_AT_ONCE; tree++) {
                uint32_t next = tree_next(nodes + at[tree], values, 1, sets);
                moved |= next ^ at[tree];
                at[tree] = next;
            }
        }
        for (size_t tree = 0; tree < WT_TREES_AT_ONCE; tree++) leaves[place[tree]] = at[tree];
    }
}

static void tree_one_row(const wt_call *call, const wt_tree_facts *facts, size_t row) {
    double *values = call->scratch;
    uint32_t *leaves = (uint32_t *)(void *)(values + facts->column_count + 1);
    wt_tree_row_values(call, facts->float32, facts->columns, facts->column_count, row, values);
    values[facts->column_count] = -HUGE_VAL;
    if (facts->set_goes_right != NULL)
        tree_walk_row(facts, values, leaves, facts->set_goes_right);
    else
        tree_walk_row(facts, values, leaves, NULL);
    for (size_t score = 0; score < facts->scores; score++) {
        double sum = wt_output(call, score)[row];
        const uint32_t *leaf = facts->vector != NULL ? leaves : leaves + score * facts->trees;
        for (size_t tree = 0; tree < facts->trees; tree++) {
            double value = facts->nodes[leaf[tree]].split;
            sum += facts->vector != NULL ? facts->vector[(size_t)value * facts->scores + score] : value;
        }
        wt_output(call, score)[row] = sum;
    }
}

/* The leaves of the rows of a call in one tree, several rows at once. */
static inline void tree_walk_rows(const wt_call *call, const wt_tree_facts *facts, uint32_t root, uint32_t *leaves, const unsigned char *sets) {
    const double *values = call->scratch;
    const wt_tree_node *nodes = facts->nodes;
    size_t row = 0;
    for (; row + WT_TREES_AT_ONCE <= call->rows; row += WT_TREES_AT_ONCE) {
        uint32_t at[WT_TREES_AT_ONCE], moved = 1;
        for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) at[lane] = root;
        while (moved != 0) {
            moved = 0;
            for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) {
                uint32_t next = tree_next(nodes + at[lane], values + row + lane, call->stride, sets);
                moved |= next ^ at[lane];
                at[lane] = next;
            }
        }
        for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) leaves[row + lane] = at[lane];
    }
    for (; row < call->rows; row++) {
        uint32_t at = root;
        while (nodes[at].follow != at) at = tree_next(nodes + at, values + row, call->stride, sets);
        leaves[row] = at;
    }
}

static void tree_many_rows(const wt_call *call, const wt_tree_facts *facts) {
    double *values = call->scratch;
    uint32_t *leaves = (uint32_t *)(void *)(values + (facts->column_count + 1) * call->stride);
    for (size_t row = 0; row < call->rows; row++) values[facts->column_count * call->stride + row] = -HUGE_VAL;
    for (size_t column = 0; column < facts->column_count; column++)
        wt_tree_values(call, facts->float32, facts->columns + column, 0, call->rows, values + column * call->stride);
    size_t roots = facts->vector != NULL ? facts->trees : facts->trees * facts->scores;
    for (size_t tree = 0; tree < roots; tree++) {
        if (facts->set_goes_right != NULL)
            tree_walk_rows(call, facts, facts->root[tree], leaves, facts->set_goes_right);
        else
            tree_walk_rows(call, facts, facts->root[tree], leaves, NULL);
        if (facts->vector == NULL) {
            double *y = wt_output(call, tree / facts->trees);
            for (size_t row = 0; row < call->rows; row++) y[row] += facts->nodes[leaves[row]].split;
            continue;
        }
        for (size_t score = 0; score < facts->scores; score++) {
            double *y = wt_output(call, score);
            for (size_t row = 0; row < call->rows; row++)
                y[row] += facts->vector[(size_t)facts->nodes[leaves[row]].split * facts->scores + score];
        }
    }
}

/* Add the leaves of all rows to the outputs, by the kernel that takes the least time for so many. */
static void tree_add(const wt_call *call, const wt_tree_facts *facts) {
    size_t chunk = call->rows <= MEDIUM_ROWS ? WT_WORD_ROWS : WT_MASK_ROWS;
    for (size_t first = 0; first < call->rows; first += chunk) {
        size_t count = call->rows - first < chunk ? call->rows - first : chunk;
        if (count <= facts->successor_rows && wt_tree_successors(call, facts, first, count)) continue;
        if (call->rows >= facts->mask_rows) {
            wt_tree_masks(call, facts, first, count);
        } else if (facts->successor_rows != 0 && wt_tree_successors_avx2(call, facts, first, count)) {
            continue;
        } else if (call->rows < FEW_ROWS || facts->mask_rows <= WT_MASK_ROWS) {
            for (size_t row = first; row < first + count; row++) tree_one_row(call, facts, row);
        } else {
            tree_many_rows(call, facts);
            return;
        }
    }
}

void wt_trees(const wt_call *call) {
    wt_tree_facts facts = wt_tree_facts_of(call);
    for (size_t score = 0; score < facts.scores; score++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, score)[row] = facts.base[score];
    tree_add(call, &facts);
    for (size_t score = 0; score < facts.scores; score++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, score)[row] /= facts.divisor;
}

/* One input per tree, the column of its leaf. y[leaf] = 1, and 0 elsewhere */
void wt_leaf_one_hot(const wt_call *call) {
    for (size_t column = 0; column < call->step->outputs; column++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, column)[row] = 0.0;
    for (size_t tree = 0; tree < call->step->inputs; tree++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, (size_t)wt_input(call, tree)[row])[row] = 1.0;
}

/* facts: trees; const, plain [leaves]; used int64, coefficient [leaves, most]; most; score int64 [trees]. Inputs: the
 * leaf of each tree, then the features; used is -1 behind the features of a leaf.
 * y[score[tree]] += const + coefficient . x, or plain where a used feature is missing */
void wt_linear_leaves(const wt_call *call) {
    size_t trees = (size_t)call->facts[0].integer, most = (size_t)call->facts[5].integer;
    const double *constant = wt_tensor(call, 1), *plain = wt_tensor(call, 2), *coefficient = wt_tensor(call, 4);
    const int64_t *used = wt_tensor(call, 3), *score = wt_tensor(call, 6);
    for (size_t sum = 0; sum < call->step->outputs; sum++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, sum)[row] = 0.0;
    for (size_t tree = 0; tree < trees; tree++) {
        for (size_t row = 0; row < call->rows; row++) {
            size_t leaf = (size_t)wt_input(call, tree)[row];
            const int64_t *feature = used + leaf * most;
            double value = constant[leaf];
            for (size_t at = 0; at < most && feature[at] >= 0; at++) {
                double x = wt_input(call, trees + (size_t)feature[at])[row];
                if (isnan(x)) {
                    value = plain[leaf];
                    break;
                }
                value += coefficient[leaf * most + at] * x;
            }
            wt_output(call, (size_t)score[tree])[row] += value;
        }
    }
}
