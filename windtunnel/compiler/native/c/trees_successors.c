/*
 * Hard trees, few rows: all nodes of a tree are asked at once, and a table says where each of them sends the row.
 *
 * What is compared is a byte, as for oblivious trees. One permutation of the bytes of a row gives those that 64 nodes
 * compare, one comparison their answers, and one choice between left and right the successor of each node. A table that
 * is looked up in itself skips a level, then two, then four: a few permutations lead from the root to the last node.
 * A node whose successor is a leaf is its own successor, so its answer tells the leaf.
 *
 * The permutations of 64 bytes need AVX-512 (VBMI). With AVX2 the successors in the first table of a tree are still
 * found at once, from permutations of 16 bytes, but a row steps from node to node, in eight trees side by side. A step is
 * one look-up, and a node takes four bytes, so that the nodes of many trees stay in the cache.
 */
#include "trees.h"

#ifdef WT_AVX2

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
        .values = (const double (*)[2])wt_tensor(call, FIRST + WT_TREE_BYTES_FACTS + 2),
    };
    return facts;
}

/* ---- AVX2 ---- */

/* A node of a tree: what it compares, above what the answer is right, and its successors are SUCCESSOR_LANES apart. */
static inline const unsigned char *successor_node(const successor_table *tables, uint32_t node) {
    return (const unsigned char *)(tables + node / SUCCESSOR_LANES) + node % SUCCESSOR_LANES;
}

/* bytes: of the row. */
static inline size_t successor_answer(const unsigned char *node, const unsigned char *bytes) {
    return bytes[node[offsetof(successor_table, column)]] > node[offsetof(successor_table, bound)];
}

/* Trees that are walked side by side, and where a row is in each of them. */
typedef struct {
    const uint32_t *place; /* of the leaves */
    uint32_t first[WT_TREES_AT_ONCE], at[WT_TREES_AT_ONCE];
    uint32_t inside, beyond; /* the most steps that start in the first table of a tree, and the most after these */
} successor_group;

static inline successor_group successor_group_of(const wt_tree_facts *trees, const successor_facts *facts, size_t group, size_t roots) {
    successor_group some = {.place = trees->group_place + group * WT_TREES_AT_ONCE};
    for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) {
        const successor_tree *tree = facts->trees + (some.place[lane] < roots ? some.place[lane] : 0); /* lanes beyond the last tree repeat tree 0, and their leaves are not read */
        uint32_t inside = tree->steps - tree->rest;
        some.first[lane] = tree->first;
        some.inside = inside > some.inside ? inside : some.inside;
        some.beyond = tree->rest > some.beyond ? tree->rest : some.beyond;
    }
    return some;
}

/* Go on until no row moves, at most so many steps in each tree; then take the leaves. */
WT_INLINE void successor_leaves(successor_group *some, const successor_facts *facts, const unsigned char *bytes, uint32_t steps, double *leaves) {
    for (uint32_t moved = 1; steps > 0 && moved != 0; steps--) {
        moved = 0;
        for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) {
            const unsigned char *node = successor_node(facts->tables + some->first[lane], some->at[lane]);
            uint32_t next = node[offsetof(successor_table, left) + SUCCESSOR_LANES * successor_answer(node, bytes)];
            moved |= next ^ some->at[lane];
            some->at[lane] = next;
        }
    }
    for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) {
        size_t answer = successor_answer(successor_node(facts->tables + some->first[lane], some->at[lane]), bytes);
        leaves[some->place[lane]] = facts->values[(size_t)some->first[lane] * SUCCESSOR_LANES + some->at[lane]][answer];
    }
}

enum { PERMUTED_AVX2 = 16, MOST_PERMUTED_AVX2 = 4 * PERMUTED_AVX2 };

/* The successors of the nodes of a table. bytes: of the row, 16 in each half of a register. */
WT_AVX2 WT_INLINE void successors_avx2(const successor_table *table, const __m256i *bytes, size_t registers, unsigned char *successors) {
    for (size_t half = 0; half < SUCCESSOR_LANES; half += 32) {
        __m256i column = _mm256_loadu_si256((const void *)(table->column + half)), rank = _mm256_setzero_si256();
        for (size_t at = 0; at < registers; at++) { /* columns of other registers get bit 7, which gives 0 */
            __m256i place = _mm256_adds_epu8(_mm256_sub_epi8(column, _mm256_set1_epi8((char)(PERMUTED_AVX2 * at))), _mm256_set1_epi8(0x70));
            rank = _mm256_or_si256(rank, _mm256_shuffle_epi8(bytes[at], place));
        }
        __m256i over = _mm256_subs_epu8(rank, _mm256_loadu_si256((const void *)(table->bound + half)));
        __m256i goes_left = _mm256_cmpeq_epi8(over, _mm256_setzero_si256());
        __m256i left = _mm256_loadu_si256((const void *)(table->left + half)), right = _mm256_loadu_si256((const void *)(table->right + half));
        _mm256_storeu_si256((void *)(successors + half), _mm256_blendv_epi8(right, left, goes_left));
    }
}

/* Go so many steps, or until a row is at its last node in all trees; to look for that after each step takes longer. */
WT_INLINE void successor_steps(uint32_t *at, unsigned char (*next)[SUCCESSOR_TABLES * SUCCESSOR_LANES], uint32_t steps) {
    enum { UNCHECKED = 3 };
    for (; steps > UNCHECKED; steps -= UNCHECKED + 1) {
        uint32_t moved = 0;
        for (size_t step = 0; step < UNCHECKED; step++)
            for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) at[lane] = next[lane][at[lane]];
        for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) {
            moved |= at[lane] ^ next[lane][at[lane]];
            at[lane] = next[lane][at[lane]];
        }
        if (moved == 0) return;
    }
    for (; steps > 0; steps--)
        for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) at[lane] = next[lane][at[lane]];
}

/* The leaves of some rows in all trees, [rows, roots]. A step in the first table of a tree is one look-up. Tables that one row has
 * read are in the cache for the others. bytes: [rows, MOST_PERMUTED_AVX2] */
WT_AVX2 WT_INLINE void successor_walk_avx2(const wt_tree_facts *trees, const successor_facts *facts, const unsigned char *bytes, size_t rows, size_t roots, double *leaves, size_t registers) {
    unsigned char next[WT_TREES_AT_ONCE][SUCCESSOR_TABLES * SUCCESSOR_LANES];
    for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) /* nodes beyond the first table wait */
        for (size_t node = SUCCESSOR_LANES; node < sizeof(next[lane]); node++) next[lane][node] = (unsigned char)node;
    for (size_t group = 0; group < trees->groups; group++) {
        const successor_group start = successor_group_of(trees, facts, group, roots);
        for (size_t row = 0; row < rows; row++) {
            const unsigned char *of_row = bytes + row * MOST_PERMUTED_AVX2;
            __m256i permuted[MOST_PERMUTED_AVX2 / PERMUTED_AVX2];
            for (size_t at = 0; at < registers; at++) permuted[at] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(of_row + PERMUTED_AVX2 * at)));
            successor_group some = start;
            for (size_t lane = 0; lane < WT_TREES_AT_ONCE; lane++) successors_avx2(facts->tables + some.first[lane], permuted, registers, next[lane]);
            successor_steps(some.at, next, some.inside);
            successor_leaves(&some, facts, of_row, some.beyond, leaves + row * (roots + WT_TREES_AT_ONCE));
        }
    }
}

/* For up to 16, 32 or 64 columns of bytes. */
WT_AVX2 static void successor_walk_any_avx2(const wt_tree_facts *trees, const successor_facts *facts, const unsigned char *bytes, size_t rows, size_t roots, double *leaves) {
    if (facts->columns.count <= PERMUTED_AVX2)
        successor_walk_avx2(trees, facts, bytes, rows, roots, leaves, 1);
    else if (facts->columns.count <= 2 * PERMUTED_AVX2)
        successor_walk_avx2(trees, facts, bytes, rows, roots, leaves, 2);
    else
        successor_walk_avx2(trees, facts, bytes, rows, roots, leaves, 4);
}

int wt_tree_successors_avx2(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    successor_facts facts = successor_facts_of(call);
    if (facts.columns.count > MOST_PERMUTED_AVX2 || !WT_HAS_AVX2) return 0;
    double *values = call->scratch, *leaves = values + trees->column_count;
    size_t roots = trees->vector != NULL ? trees->trees : trees->trees * trees->scores;
    for (size_t end = first + count; first < end; first += SUCCESSOR_ROWS) {
        unsigned char bytes[SUCCESSOR_ROWS][MOST_PERMUTED_AVX2];
        size_t rows = end - first < SUCCESSOR_ROWS ? end - first : SUCCESSOR_ROWS;
        for (size_t row = 0; row < rows; row++) {
            wt_tree_row_values(call, trees->float32, trees->columns, trees->column_count, first + row, values);
            wt_tree_row_bytes(&facts.columns, values, bytes[row]);
        }
        successor_walk_any_avx2(trees, &facts, bytes[0], rows, roots, leaves);
        for (size_t score = 0; score < trees->scores; score++) {
            const double *leaf = leaves + (trees->vector != NULL ? 0 : score * trees->trees);
            double sum[SUCCESSOR_ROWS];
            for (size_t row = 0; row < rows; row++) sum[row] = wt_output(call, score)[first + row];
            for (size_t tree = 0; tree < trees->trees; tree++)
                for (size_t row = 0; row < rows; row++) { /* side by side: a sum waits for the one before it */
                    double value = leaf[row * (roots + WT_TREES_AT_ONCE) + tree];
                    sum[row] += trees->vector != NULL ? trees->vector[(size_t)value * trees->scores + score] : value;
                }
            for (size_t row = 0; row < rows; row++) wt_output(call, score)[first + row] = sum[row];
        }
    }
    return 1;
}

/* ---- AVX-512 ---- */

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

int wt_tree_successors_avx2(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    return wt_tree_successors(call, trees, first, count);
}

#endif
