/*
 * Oblivious trees: all nodes of a level ask the same, so that the answers are the bits of the number of the leaf.
 *
 * What is compared is a byte: the rank of a value among at most 255 thresholds of its column, or whether a category is
 * in a set. Few rows take 64 trees at once, whose bytes a permutation of the ranks of a row brings together. More rows
 * take 64 rows of a tree at once.
 */
#include <string.h>

#include "trees.h"

enum { OBLIVIOUS_LANES = 64, PERMUTED = 256, OBLIVIOUS_ROWS = 4, BYTE_LEVELS = 8 };

/* Trees whose leaves are added at once, and rows whose numbers are computed in whole vectors. */
enum { OBLIVIOUS_TREES = 8, OBLIVIOUS_VECTOR = 32 };

typedef struct {
    uint32_t depth;
    uint32_t leaf; /* place of the values of the first leaf, in leaves */
    uint32_t score;
    uint32_t plane; /* place of the planes, in OBLIVIOUS_LANES bytes */
} oblivious_tree;

/* The facts of the operation. Trees are in groups of OBLIVIOUS_LANES; levels: of the deepest tree. */
typedef struct {
    const wt_tree_column *values;
    int float32;
    size_t value_count;
    wt_tree_bytes columns;
    const uint16_t *compared;        /* [groups, levels, OBLIVIOUS_LANES]: a column; the answer is whether it is above bound */
    const unsigned char *bound;      /* [groups, levels, OBLIVIOUS_LANES] */
    const unsigned char *permuted;   /* compared as bytes, or NULL if there are more columns than PERMUTED */
    size_t levels;
    const oblivious_tree *trees;
    size_t tree_count;
    const double *leaves; /* [leaves], or [leaves, scores] */
    /* Of trees of up to BYTE_LEVELS levels: the first bytes of the leaves' values, the second ones, and so on. */
    const unsigned char *planes; /* [8, leaves], or [scores, 8, leaves]; OBLIVIOUS_LANES leaves at least */
    int vector;
    const double *base; /* [scores] */
    double divisor;
    size_t scores;
} oblivious_facts;

static oblivious_facts oblivious_facts_of(const wt_call *call) {
    const wt_fact *fact = call->facts;
    oblivious_facts facts = {
        .values = wt_tensor(call, 0),
        .float32 = fact[1].integer != 0,
        .value_count = (size_t)fact[2].integer,
        .columns = wt_tree_bytes_of(call, 3),
        .compared = wt_tensor(call, 18),
        .bound = wt_tensor(call, 19),
        .permuted = fact[3].integer <= PERMUTED ? wt_tensor(call, 20) : NULL,
        .levels = (size_t)fact[21].integer,
        .trees = wt_tensor(call, 22),
        .tree_count = (size_t)fact[23].integer,
        .leaves = wt_tensor(call, 24),
        .planes = wt_tensor(call, 25),
        .vector = fact[26].integer != 0,
        .base = wt_tensor(call, 27),
        .divisor = fact[28].number,
        .scores = call->step->outputs,
    };
    return facts;
}

static size_t rounded_up(size_t count, size_t unit) {
    return (count + unit - 1) / unit * unit;
}

/* ---- Few rows ---- */

/* The numbers of the leaves of a row, in two bytes each: low [groups, OBLIVIOUS_LANES], high [groups, OBLIVIOUS_LANES]. */
WT_PROCESSORS static void oblivious_row_leaves(const oblivious_facts *facts, const unsigned char *bytes, unsigned char *low, unsigned char *high) {
    const uint16_t *compared = facts->compared;
    const unsigned char *bound = facts->bound;
    for (size_t first = 0; first < facts->tree_count; first += OBLIVIOUS_LANES) {
        memset(low + first, 0, OBLIVIOUS_LANES);
        memset(high + first, 0, OBLIVIOUS_LANES);
        for (size_t level = 0; level < facts->levels; level++, compared += OBLIVIOUS_LANES, bound += OBLIVIOUS_LANES) {
            unsigned char rank[OBLIVIOUS_LANES], *leaf = (level < BYTE_LEVELS ? low : high) + first;
            unsigned char bit = (unsigned char)(1 << level % BYTE_LEVELS);
            for (size_t lane = 0; lane < OBLIVIOUS_LANES; lane++) rank[lane] = bytes[compared[lane]];
            for (size_t lane = 0; lane < OBLIVIOUS_LANES; lane++) leaf[lane] |= rank[lane] > bound[lane] ? bit : 0;
        }
    }
}

#ifdef WT_BYTES
/* The same for up to 64, 128 or 256 columns, in as many registers of 64 bytes. */
WT_BYTES WT_INLINE void oblivious_permute(const oblivious_facts *facts, const unsigned char *bytes, unsigned char *low, unsigned char *high, size_t registers) {
    __m512i table[4];
    for (size_t at = 0; at < registers; at++) table[at] = _mm512_loadu_si512(bytes + at * OBLIVIOUS_LANES);
    const unsigned char *permuted = facts->permuted, *bound = facts->bound;
    for (size_t first = 0; first < facts->tree_count; first += OBLIVIOUS_LANES) {
        __m512i leaf = _mm512_setzero_si512(), bit = _mm512_set1_epi8(1), rank;
        for (size_t level = 0; level < facts->levels; level++, permuted += OBLIVIOUS_LANES, bound += OBLIVIOUS_LANES) {
            if (level == BYTE_LEVELS) {
                _mm512_storeu_si512(low + first, leaf);
                leaf = _mm512_setzero_si512();
                bit = _mm512_set1_epi8(1);
            }
            __m512i column = _mm512_loadu_si512(permuted);
            if (registers == 1)
                rank = _mm512_permutexvar_epi8(column, table[0]);
            else
                rank = _mm512_permutex2var_epi8(table[0], column, table[1]);
            if (registers == 4)
                rank = _mm512_mask_blend_epi8(_mm512_movepi8_mask(column), rank, _mm512_permutex2var_epi8(table[2], column, table[3]));
            leaf = _mm512_mask_add_epi8(leaf, _mm512_cmpgt_epu8_mask(rank, _mm512_loadu_si512(bound)), leaf, bit);
            bit = _mm512_add_epi8(bit, bit);
        }
        _mm512_storeu_si512((facts->levels > BYTE_LEVELS ? high : low) + first, leaf);
    }
}

WT_BYTES static void oblivious_permuted_leaves(const oblivious_facts *facts, const unsigned char *bytes, unsigned char *low, unsigned char *high) {
    if (facts->columns.count <= OBLIVIOUS_LANES)
        oblivious_permute(facts, bytes, low, high, 1);
    else if (facts->columns.count <= 2 * OBLIVIOUS_LANES)
        oblivious_permute(facts, bytes, low, high, 2);
    else
        oblivious_permute(facts, bytes, low, high, 4);
}
#endif

/* Add up the leaves of some rows side by side: a sum waits for the one before it. low and high: [rows, padded]. */
WT_INLINE void oblivious_row_sums(const wt_call *call, const oblivious_facts *facts, size_t first, size_t rows, const unsigned char *low, size_t padded, int deep) {
    const unsigned char *high = low + OBLIVIOUS_ROWS * padded;
    size_t each = facts->scores == 0 || facts->vector ? facts->tree_count : facts->tree_count / facts->scores;
    for (size_t score = 0; score < facts->scores; score++) {
        const double *leaves = facts->leaves + (facts->vector ? score : 0);
        size_t start = facts->vector ? 0 : score * each, step = facts->vector ? facts->scores : 1;
        double sum[OBLIVIOUS_ROWS];
        for (size_t row = 0; row < rows; row++) sum[row] = facts->base[score];
        for (size_t tree = start; tree < start + each; tree++)
            for (size_t row = 0; row < rows; row++) {
                size_t leaf = facts->trees[tree].leaf + low[row * padded + tree];
                if (deep) leaf += (size_t)high[row * padded + tree] << BYTE_LEVELS;
                sum[row] += leaves[leaf * step];
            }
        for (size_t row = 0; row < rows; row++) wt_output(call, score)[first + row] = sum[row] / facts->divisor;
    }
}

static void oblivious_few_rows(const wt_call *call, const oblivious_facts *facts) {
    double *values = call->scratch;
    unsigned char *bytes = (unsigned char *)(values + facts->value_count), *low = bytes + rounded_up(facts->columns.count, PERMUTED);
    size_t padded = rounded_up(facts->tree_count, OBLIVIOUS_LANES);
    for (size_t first = 0; first < call->rows; first += OBLIVIOUS_ROWS) {
        size_t rows = call->rows - first < OBLIVIOUS_ROWS ? call->rows - first : OBLIVIOUS_ROWS;
        for (size_t row = 0; row < rows; row++) {
            wt_tree_row_values(call, facts->float32, facts->values, facts->value_count, first + row, values);
            wt_tree_row_bytes(&facts->columns, values, bytes);
            unsigned char *to = low + row * padded;
#ifdef WT_BYTES
            if (facts->permuted != NULL && WT_HAS_BYTES) {
                oblivious_permuted_leaves(facts, bytes, to, to + OBLIVIOUS_ROWS * padded);
                continue;
            }
#endif
            oblivious_row_leaves(facts, bytes, to, to + OBLIVIOUS_ROWS * padded);
        }
        if (facts->levels > BYTE_LEVELS)
            oblivious_row_sums(call, facts, first, rows, low, padded, 1);
        else if (rows == 1)
            oblivious_row_sums(call, facts, first, 1, low, padded, 0);
        else if (rows == OBLIVIOUS_ROWS)
            oblivious_row_sums(call, facts, first, OBLIVIOUS_ROWS, low, padded, 0);
        else
            oblivious_row_sums(call, facts, first, rows, low, padded, 0);
    }
}

/* ---- More rows ---- */

#ifdef WT_AVX2
/* Of float32 values among a few thresholds: a comparison with each takes less time than a search. Writes whole vectors. */
WT_AVX2 static void oblivious_count_avx2(const double *bounds, size_t thresholds, const double *values, unsigned char *bytes, size_t count) {
    enum { LANES = 8, VECTORS = OBLIVIOUS_VECTOR / LANES };
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t row = 0; row < count; row += OBLIVIOUS_VECTOR) {
        __m256 x[VECTORS];
        __m256i below[VECTORS];
        for (size_t at = 0; at < VECTORS; at++) {
            const double *from = values + row + at * LANES;
            x[at] = _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(from + LANES / 2)), _mm256_cvtpd_ps(_mm256_loadu_pd(from)));
            below[at] = _mm256_setzero_si256();
        }
        for (size_t threshold = 0; threshold < thresholds; threshold++) {
            __m256 bound = _mm256_set1_ps((float)bounds[threshold]);
            for (size_t at = 0; at < VECTORS; at++) below[at] = _mm256_sub_epi32(below[at], _mm256_castps_si256(_mm256_cmp_ps(x[at], bound, _CMP_GT_OQ)));
        }
        __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(below[0], below[1]), _mm256_packus_epi32(below[2], below[3]));
        _mm256_storeu_si256((void *)(bytes + row), _mm256_permutevar8x32_epi32(packed, in_order));
    }
}
#endif

static void oblivious_column_bytes(const wt_tree_bytes *columns, size_t at, int float32, const double *values, unsigned char *bytes, size_t count) {
    if (columns->set[at] != UINT32_MAX) {
        for (size_t row = 0; row < count; row++) bytes[row] = wt_tree_in_set(columns, at, values[row]);
        return;
    }
#ifdef WT_AVX2
    if (float32 && columns->few[at] != 0 && WT_HAS_AVX2) {
        oblivious_count_avx2(columns->bounds + columns->bound[at], columns->few[at], values, bytes, count);
        return;
    }
#else
    (void)float32;
#endif
    wt_tree_search search = {
        .low = columns->low[at],
        .scale = columns->scale[at],
        .last = (uint32_t)columns->last[at],
        .cell = columns->cell[at],
        .bound = columns->bound[at],
        .steps = columns->steps[at],
    };
    uint32_t ranks[WT_MASK_ROWS];
    wt_tree_ranks(&search, columns->cells, columns->bounds, values, count, ranks);
    for (size_t row = 0; row < count; row++) bytes[row] = (unsigned char)ranks[row];
}

/* The numbers of the leaves of rows in one tree, from some levels on. */
WT_INLINE void oblivious_numbers(const unsigned char *const *bytes, const unsigned char *bound, size_t levels, unsigned char *restrict number, size_t count) {
    for (size_t row = 0; row < count; row++) {
        unsigned char leaf = 0;
        for (size_t level = 0; level < levels; level++) leaf |= (unsigned char)((bytes[level][row] > bound[level]) << level);
        number[row] = leaf;
    }
}

/* The same in whole vectors: what stands behind the last row in the columns of bytes gives numbers that nobody reads. */
WT_INLINE void oblivious_numbers_of(const unsigned char *const *bytes, const unsigned char *bound, size_t levels, unsigned char *restrict number, size_t count) {
    count = rounded_up(count, OBLIVIOUS_VECTOR);
    switch (levels) { /* each unrolled */
#define NUMBERS(levels) \
    case levels: oblivious_numbers(bytes, bound, levels, number, count); break;
        NUMBERS(0)
        NUMBERS(1)
        NUMBERS(2)
        NUMBERS(3)
        NUMBERS(4)
        NUMBERS(5)
        NUMBERS(6)
        NUMBERS(7)
        NUMBERS(8)
#undef NUMBERS
    }
}

/* What the levels of a tree compare: columns of bytes, [WT_MASK_ROWS] each, and bounds. */
typedef struct {
    const unsigned char *bytes[2 * BYTE_LEVELS];
    unsigned char bound[2 * BYTE_LEVELS];
} oblivious_levels;

static inline void oblivious_read_levels(const oblivious_facts *facts, size_t tree, const unsigned char *bytes, oblivious_levels *levels) {
    for (size_t level = 0; level < facts->trees[tree].depth; level++) {
        size_t at = (tree / OBLIVIOUS_LANES * facts->levels + level) * OBLIVIOUS_LANES + tree % OBLIVIOUS_LANES;
        levels->bytes[level] = bytes + facts->compared[at] * (size_t)WT_MASK_ROWS;
        levels->bound[level] = facts->bound[at];
    }
}

/* Add the leaves of a tree of any depth, with any number of values, to the outputs of rows. */
WT_PROCESSORS static void oblivious_add_tree(const wt_call *call, const oblivious_facts *facts, size_t at, const unsigned char *bytes, size_t first, size_t count) {
    unsigned char low[WT_MASK_ROWS], high[WT_MASK_ROWS];
    const oblivious_tree *tree = facts->trees + at;
    oblivious_levels levels;
    oblivious_read_levels(facts, at, bytes, &levels);
    size_t depth = tree->depth, step = facts->vector ? facts->scores : 1;
    oblivious_numbers_of(levels.bytes, levels.bound, depth < BYTE_LEVELS ? depth : BYTE_LEVELS, low, count);
    if (depth > BYTE_LEVELS) oblivious_numbers_of(levels.bytes + BYTE_LEVELS, levels.bound + BYTE_LEVELS, depth - BYTE_LEVELS, high, count);
    for (size_t score = 0; score < step; score++) {
        const double *leaves = facts->leaves + (size_t)tree->leaf * step + score;
        double *sum = wt_output(call, tree->score + score) + first;
        if (depth > BYTE_LEVELS)
            for (size_t row = 0; row < count; row++) sum[row] += leaves[(low[row] | (size_t)high[row] << BYTE_LEVELS) * step];
        else
            for (size_t row = 0; row < count; row++) sum[row] += leaves[low[row] * step];
    }
}

/* Add the leaves of OBLIVIOUS_TREES trees of one score, of up to BYTE_LEVELS levels: each sum is read and written once. */
WT_PROCESSORS static void oblivious_add_trees(const wt_call *call, const oblivious_facts *facts, size_t at, const unsigned char *bytes, size_t first, size_t count) {
    unsigned char number[OBLIVIOUS_TREES][WT_MASK_ROWS];
    const double *leaves[OBLIVIOUS_TREES];
    for (size_t tree = 0; tree < OBLIVIOUS_TREES; tree++) {
        oblivious_levels levels;
        oblivious_read_levels(facts, at + tree, bytes, &levels);
        oblivious_numbers_of(levels.bytes, levels.bound, facts->trees[at + tree].depth, number[tree], count);
        leaves[tree] = facts->leaves + facts->trees[at + tree].leaf;
    }
    double *sums = wt_output(call, facts->trees[at].score) + first;
    for (size_t row = 0; row < count; row++) {
        double sum = sums[row];
        for (size_t tree = 0; tree < OBLIVIOUS_TREES; tree++) sum += leaves[tree][number[tree][row]];
        sums[row] = sum;
    }
}

/* How many trees from one on the function above takes: OBLIVIOUS_TREES, or none. */
static size_t oblivious_together(const oblivious_facts *facts, size_t at) {
    if (facts->vector || at + OBLIVIOUS_TREES > facts->tree_count) return 0;
    for (size_t tree = at; tree < at + OBLIVIOUS_TREES; tree++)
        if (facts->trees[tree].depth > BYTE_LEVELS || facts->trees[tree].score != facts->trees[at].score) return 0;
    return OBLIVIOUS_TREES;
}

#ifdef WT_BYTES
/* The rows that the transposition below puts one after the other. */
#define PLACES_OF(lane) \
    lane, lane + 1, lane + 8, lane + 9, lane + 16, lane + 17, lane + 24, lane + 25, lane + 32, lane + 33, lane + 40, lane + 41, lane + 48, lane + 49, lane + 56, lane + 57
static const unsigned char OBLIVIOUS_PLACES[OBLIVIOUS_LANES] = {PLACES_OF(0), PLACES_OF(2), PLACES_OF(4), PLACES_OF(6)};
#undef PLACES_OF

/* Eight rows of 64 bytes as 64 words of eight bytes: those of the first rows of the four lanes, and so on. */
WT_BYTES WT_INLINE void oblivious_transpose(__m512i *rows) {
    __m512i half[8], quarter[8];
    for (size_t at = 0; at < 4; at++) {
        half[at] = _mm512_unpacklo_epi8(rows[2 * at], rows[2 * at + 1]);
        half[at + 4] = _mm512_unpackhi_epi8(rows[2 * at], rows[2 * at + 1]);
    }
    for (size_t at = 0; at < 8; at += 2) {
        quarter[at / 2] = _mm512_unpacklo_epi16(half[at], half[at + 1]);
        quarter[at / 2 + 4] = _mm512_unpackhi_epi16(half[at], half[at + 1]);
    }
    for (size_t at = 0; at < 2; at++)
        for (size_t side = 0; side < 2; side++) {
            const __m512i *pair = quarter + 4 * side + 2 * at;
            rows[4 * at + 2 * side] = _mm512_unpacklo_epi32(pair[0], pair[1]);
            rows[4 * at + 2 * side + 1] = _mm512_unpackhi_epi32(pair[0], pair[1]);
        }
}

/* The same for up to BYTE_LEVELS levels: eight permutations look up a byte each of the values of 64 rows. */
WT_BYTES WT_INLINE void oblivious_add_planes(const wt_call *call, const oblivious_facts *facts, const oblivious_tree *tree, const unsigned char *const *bytes, const unsigned char *bound, size_t first, size_t count, size_t registers) {
    size_t scores = facts->vector ? facts->scores : 1;
    __m512i places = _mm512_loadu_si512(OBLIVIOUS_PLACES), planes[8];
    for (size_t row = 0; row < count; row += OBLIVIOUS_LANES) {
        __m512i leaf = _mm512_setzero_si512(), bit = _mm512_set1_epi8(1);
        for (size_t level = 0; level < tree->depth; level++) {
            __mmask64 above = _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(bytes[level] + row), _mm512_set1_epi8((char)bound[level]));
            leaf = _mm512_mask_add_epi8(leaf, above, leaf, bit);
            bit = _mm512_add_epi8(bit, bit);
        }
        leaf = _mm512_permutexvar_epi8(places, leaf);
        __mmask64 upper = _mm512_movepi8_mask(leaf);
        const unsigned char *table = facts->planes + tree->plane * (size_t)OBLIVIOUS_LANES;
        for (size_t score = 0; score < scores; score++) {
            for (size_t plane = 0; plane < 8; plane++, table += registers * OBLIVIOUS_LANES) {
                __m512i low = _mm512_loadu_si512(table);
                if (registers == 1) {
                    planes[plane] = _mm512_permutexvar_epi8(leaf, low);
                    continue;
                }
                planes[plane] = _mm512_permutex2var_epi8(low, leaf, _mm512_loadu_si512(table + OBLIVIOUS_LANES));
                if (registers == 2) continue;
                __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 2 * OBLIVIOUS_LANES), leaf, _mm512_loadu_si512(table + 3 * OBLIVIOUS_LANES));
                planes[plane] = _mm512_mask_mov_epi8(planes[plane], upper, high);
            }
            oblivious_transpose(planes);
            double *y = wt_output(call, tree->score + score) + first + row;
            for (size_t at = 0; at < 8 && row + 8 * at < count; at++) /* columns of several rows end at a multiple of 8 */
                _mm512_storeu_pd(y + 8 * at, _mm512_add_pd(_mm512_loadu_pd(y + 8 * at), _mm512_castsi512_pd(planes[at])));
        }
    }
}

WT_BYTES static void oblivious_add_bytes(const wt_call *call, const oblivious_facts *facts, size_t at, const unsigned char *bytes, size_t first, size_t count) {
    const oblivious_tree *tree = facts->trees + at;
    oblivious_levels levels;
    oblivious_read_levels(facts, at, bytes, &levels);
    if (tree->depth <= 6)
        oblivious_add_planes(call, facts, tree, levels.bytes, levels.bound, first, count, 1);
    else if (tree->depth == 7)
        oblivious_add_planes(call, facts, tree, levels.bytes, levels.bound, first, count, 2);
    else
        oblivious_add_planes(call, facts, tree, levels.bytes, levels.bound, first, count, 4);
}
#endif

static void oblivious_more_rows(const wt_call *call, const oblivious_facts *facts, size_t first, size_t count) {
    double *values = call->scratch;
    unsigned char *bytes = (unsigned char *)(values + WT_MASK_ROWS);
    for (size_t at = 0; at < facts->columns.count; at++) {
        uint32_t column = facts->columns.value[at];
        if (at == 0 || column != facts->columns.value[at - 1])
            wt_tree_values(call, facts->float32, facts->values + column, first, count, values);
        oblivious_column_bytes(&facts->columns, at, facts->float32, values, bytes + at * WT_MASK_ROWS, count);
    }
    for (size_t tree = 0; tree < facts->tree_count;) {
#ifdef WT_BYTES
        if (facts->trees[tree].depth <= BYTE_LEVELS && WT_HAS_BYTES) {
            oblivious_add_bytes(call, facts, tree++, bytes, first, count);
            continue;
        }
#endif
        size_t together = oblivious_together(facts, tree);
        (together != 0 ? oblivious_add_trees : oblivious_add_tree)(call, facts, tree, bytes, first, count);
        tree += together != 0 ? together : 1;
    }
}

/* Up to so many rows a row at a time costs less than a tree at a time; measured. */
static size_t oblivious_fewest(const oblivious_facts *facts) {
#ifdef WT_BYTES
    size_t rows = 8 + facts->tree_count / 16;
    if (WT_HAS_BYTES && facts->permuted != NULL) return rows < 40 ? rows : 40;
#else
    (void)facts;
#endif
    return 5;
}

void wt_oblivious_trees(const wt_call *call) {
    oblivious_facts facts = oblivious_facts_of(call);
    if (call->rows < oblivious_fewest(&facts)) {
        oblivious_few_rows(call, &facts);
        return;
    }
    for (size_t score = 0; score < facts.scores; score++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, score)[row] = facts.base[score];
    for (size_t first = 0; first < call->rows; first += WT_MASK_ROWS)
        oblivious_more_rows(call, &facts, first, call->rows - first < WT_MASK_ROWS ? call->rows - first : WT_MASK_ROWS);
    for (size_t score = 0; score < facts.scores; score++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, score)[row] /= facts.divisor;
}
