/*
 * Hard trees, few rows: all nodes of a tree are asked at once, and a table says where each of them sends the row.
 *
 * What is compared is a byte, as for oblivious trees. One permutation of the bytes of a row gives those that 64 nodes
 * compare, one comparison their answers, and one choice between left and right the successor of each node. A table that
 * is looked up in itself skips a level, then two, then four: a few permutations lead from the root to the last node.
 * A node whose successor is a leaf is its own successor, so its answer tells the leaf.
 *
 * This needs the permutations of AVX-512 (VBMI); without them rows walk.
 */
#include "trees.h"

#ifdef WT_BYTES

enum { SUCCESSOR_LANES = 64, SUCCESSOR_TABLES = 4, SUCCESSOR_ROWS = 4 };

/* Nodes of a tree, level by level: what they compare, above what the answer is right, and their successors. */
typedef struct {
    unsigned char column[SUCCESSOR_LANES], bound[SUCCESSOR_LANES], left[SUCCESSOR_LANES], right[SUCCESSOR_LANES];
} successor_table;

typedef struct {
    uint32_t first;  /* table; the root is its first node */
    uint32_t tables; /* at most SUCCESSOR_TABLES */
    uint32_t steps;  /* from the root to the deepest node */
    uint32_t rest;   /* of these, those that may start at a node beyond the first table */
} successor_tree;

typedef struct {
    wt_tree_bytes columns;
    const successor_table *tables;
    const successor_tree *trees;
    const double (*values)[2]; /* of the leaves on both sides of a node; the numbers of leaves with several values */
} successor_facts;

static successor_facts successor_facts_of(const wt_call *call) {
    enum { FIRST = WT_TREE_SUCCESSOR_FACTS + 1 };
    successor_facts facts = {
        .columns = wt_tree_bytes_of(call, FIRST),
        .tables = wt_tensor(call, FIRST + WT_TREE_BYTES_FACTS),
        .trees = wt_tensor(call, FIRST + WT_TREE_BYTES_FACTS + 1),
        .values = wt_tensor(call, FIRST + WT_TREE_BYTES_FACTS + 2),
    };
    return facts;
}

/* The answers of the nodes of a table, a bit each, and their successors. bytes: of the row, in 1, 2 or 4 registers. */
WT_BYTES WT_INLINE __mmask64 successors_of(const successor_table *table, const __m512i *bytes, size_t registers, __m512i *successors) {
    __m512i column = _mm512_loadu_si512(table->column), rank;
    if (registers == 1)
        rank = _mm512_permutexvar_epi8(column, bytes[0]);
    else
        rank = _mm512_permutex2var_epi8(bytes[0], column, bytes[1]);
    if (registers == 4)
        rank = _mm512_mask_blend_epi8(_mm512_movepi8_mask(column), rank, _mm512_permutex2var_epi8(bytes[2], column, bytes[3]));
    __mmask64 answers = _mm512_cmpgt_epu8_mask(rank, _mm512_loadu_si512(table->bound));
    *successors = _mm512_mask_loadu_epi8(_mm512_loadu_si512(table->left), answers, table->right);
    return answers;
}

WT_BYTES WT_INLINE size_t successor_of_root(__m512i successors) {
    return (size_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(successors)) & 0xFF;
}

/* The value that a row gets from a tree: of one table, of two, of more. */
WT_BYTES WT_INLINE double successor_value_1(const successor_facts *facts, const successor_tree *tree, const __m512i *bytes, size_t registers) {
    __m512i next;
    uint64_t answers = successors_of(facts->tables + tree->first, bytes, registers, &next);
    for (uint32_t skipped = 1; skipped < 8 || skipped < tree->steps; skipped *= 2) next = _mm512_permutexvar_epi8(next, next);
    size_t node = successor_of_root(next);
    return facts->values[(size_t)tree->first * SUCCESSOR_LANES + node][answers >> node & 1];
}

WT_BYTES WT_INLINE double successor_value_2(const successor_facts *facts, const successor_tree *tree, const __m512i *bytes, size_t registers) {
    __m512i next, second;
    uint64_t answers = successors_of(facts->tables + tree->first, bytes, registers, &next);
    uint64_t seconds = successors_of(facts->tables + tree->first + 1, bytes, registers, &second);
    for (uint32_t skipped = 1; skipped < 8 || skipped < tree->steps; skipped *= 2) {
        __m512i skips = _mm512_permutex2var_epi8(next, next, second);
        second = _mm512_permutex2var_epi8(next, second, second);
        next = skips;
    }
    size_t node = successor_of_root(next);
    return facts->values[(size_t)tree->first * SUCCESSOR_LANES + node][(node < SUCCESSOR_LANES ? answers : seconds) >> node % SUCCESSOR_LANES & 1];
}

/* Levels are skipped in the first table only; the last ones are walked. */
WT_BYTES WT_INLINE double successor_value_4(const successor_facts *facts, const successor_tree *tree, const __m512i *bytes, size_t registers) {
    __m512i next, others;
    unsigned char successor[SUCCESSOR_TABLES * SUCCESSOR_LANES];
    uint64_t answers[SUCCESSOR_TABLES];
    answers[0] = successors_of(facts->tables + tree->first, bytes, registers, &next);
    _mm512_storeu_si512(successor, next);
    for (size_t table = 1; table < tree->tables; table++) {
        answers[table] = successors_of(facts->tables + tree->first + table, bytes, registers, &others);
        _mm512_storeu_si512(successor + table * SUCCESSOR_LANES, others);
    }
    for (uint32_t skipped = 1; skipped < 8 || skipped < tree->steps; skipped *= 2) {
        __mmask64 inside = _mm512_cmplt_epu8_mask(next, _mm512_set1_epi8(SUCCESSOR_LANES));
        next = _mm512_mask_permutexvar_epi8(next, inside, next, next);
    }
    size_t node = successor_of_root(next);
    for (uint32_t step = 0; step < tree->rest; step++) node = successor[node];
    return facts->values[(size_t)tree->first * SUCCESSOR_LANES + node][answers[node / SUCCESSOR_LANES] >> node % SUCCESSOR_LANES & 1];
}

WT_BYTES WT_INLINE double successor_value(const successor_facts *facts, const successor_tree *tree, const __m512i *bytes, size_t registers) {
    if (tree->tables == 1) return successor_value_1(facts, tree, bytes, registers);
    if (tree->tables == 2) return successor_value_2(facts, tree, bytes, registers);
    return successor_value_4(facts, tree, bytes, registers);
}

/* Add the leaves of some rows to the outputs. Tables that one row has read are in the cache for the others. */
WT_BYTES WT_INLINE void successor_rows(const wt_call *call, const wt_tree_facts *trees, const successor_facts *facts, size_t first, size_t rows, size_t registers) {
    __m512i bytes[SUCCESSOR_ROWS][4];
    for (size_t row = 0; row < rows; row++) {
        unsigned char of_row[4 * SUCCESSOR_LANES];
        wt_tree_row_values(call, trees->float32, trees->columns, trees->column_count, first + row, call->scratch);
        wt_tree_row_bytes(&facts->columns, call->scratch, of_row);
        for (size_t at = 0; at < registers; at++) bytes[row][at] = _mm512_loadu_si512(of_row + at * SUCCESSOR_LANES);
    }
    if (trees->vector != NULL) {
        for (size_t tree = 0; tree < trees->trees; tree++)
            for (size_t row = 0; row < rows; row++) {
                const double *leaf = trees->vector + (size_t)successor_value(facts, facts->trees + tree, bytes[row], registers) * trees->scores;
                for (size_t score = 0; score < trees->scores; score++) wt_output(call, score)[first + row] += leaf[score];
            }
        return;
    }
    for (size_t score = 0; score < trees->scores; score++) {
        double sum[SUCCESSOR_ROWS];
        for (size_t row = 0; row < rows; row++) sum[row] = wt_output(call, score)[first + row];
        for (size_t tree = score * trees->trees; tree < (score + 1) * trees->trees; tree++)
            for (size_t row = 0; row < rows; row++) sum[row] += successor_value(facts, facts->trees + tree, bytes[row], registers);
        for (size_t row = 0; row < rows; row++) wt_output(call, score)[first + row] = sum[row];
    }
}

WT_BYTES WT_INLINE void successor_add(const wt_call *call, const wt_tree_facts *trees, const successor_facts *facts, size_t first, size_t count, size_t registers) {
    size_t end = first + count;
    for (; first + SUCCESSOR_ROWS <= end; first += SUCCESSOR_ROWS) successor_rows(call, trees, facts, first, SUCCESSOR_ROWS, registers);
    for (; first < end; first++) successor_rows(call, trees, facts, first, 1, registers);
}

/* For up to 64, 128 or 256 columns of bytes. */
WT_BYTES static void successor_add_any(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    successor_facts facts = successor_facts_of(call);
    if (facts.columns.count <= SUCCESSOR_LANES)
        successor_add(call, trees, &facts, first, count, 1);
    else if (facts.columns.count <= 2 * SUCCESSOR_LANES)
        successor_add(call, trees, &facts, first, count, 2);
    else
        successor_add(call, trees, &facts, first, count, 4);
}

int wt_tree_successors(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    if (!WT_HAS_BYTES) return 0;
    successor_add_any(call, trees, first, count);
    return 1;
}

#else

int wt_tree_successors(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    (void)call, (void)trees, (void)first, (void)count;
    return 0;
}

#endif
