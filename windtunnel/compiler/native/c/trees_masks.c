/*
 * Hard trees by masks: a bit per row.
 *
 * Each condition that some node asks is computed once for all trees, as a mask of the rows that go right. A tree is
 * then a few operations on masks, from the root down: the rows that reach a node, and those of them that go right. Its
 * leaves are numbered so that going right changes one bit of the number of the leaf (where that is possible). The bits
 * of all rows' numbers are kept as masks too, and become numbers at the end of each tree.
 */
#include <string.h>

#include "trees.h"

enum { WORDS = WT_MASK_ROWS / WT_WORD_ROWS };

/* Trees whose leaves are added at once. */
enum { MASK_TREES = 8 };

/* Up to so many thresholds, comparing the ranks of all rows with each takes less time than a bit per row. */
enum { MOST_COMPARED = 24, MOST_COMPARED_AVX512 = 255 };

/* Consecutive trees and the conditions of their nodes. Masks: one of all rows, those of the columns, those of the sets. */
typedef struct {
    uint32_t tree, trees;
    uint32_t column, columns;
    uint32_t sets, set_columns;
    uint32_t masks;
    uint32_t unused;
} tree_mask_block;

/* The thresholds on a column of values, each once and ascending. Mask `first` + rank, for ranks from 1 up. */
typedef struct {
    wt_tree_search search;
    uint32_t thresholds; /* how many */
    uint32_t first;
    uint32_t column;
    uint32_t unused;
} tree_mask_column;

/* The sets of categories on a column: a row of bits per category, in words of 64 sets. */
typedef struct {
    uint32_t column;
    uint32_t last; /* category */
    uint32_t bits; /* place of the first word */
    uint32_t words;
    uint32_t first; /* mask */
    uint32_t unused;
} tree_mask_sets;

/* Rows of `condition` go to slot right, the others to slot left; the number of the leaf changes in bit `plane`. */
typedef struct {
    uint32_t condition_plane; /* 8 condition + plane */
    uint16_t left, right;
} tree_mask_node;

/* TREE_ANY has nodes. TREE_PERFECT has 2^depth - 1 conditions, level by level. */
enum { TREE_ANY = 0, TREE_PERFECT = 1 };

typedef struct {
    uint32_t kind;
    uint32_t depth;
    uint32_t first; /* node, or condition */
    uint32_t nodes;
    uint32_t leaf; /* place of the first value */
    uint32_t score;
} tree_mask_tree;

typedef struct {
    const tree_mask_block *blocks;
    size_t block_count;
    const tree_mask_column *columns;
    const uint16_t *cells;
    const double *bounds;
    const tree_mask_sets *sets;
    const uint64_t *set_bits;
    const tree_mask_tree *trees;
    const tree_mask_node *nodes;
    const double *values;
    const uint32_t *conditions;
    uint32_t slots; /* of a tree, for the rows that reach a node; behind them is one that is written and never read */
    uint32_t planes;
} tree_mask_facts;

/* What a call needs to remember. */
typedef struct {
    double *values;  /* [WT_MASK_ROWS] */
    uint32_t *ranks; /* [WT_MASK_ROWS] */
    uint64_t *masks, *reach;
    uint64_t *planes;    /* [8 WORDS] */
    unsigned char *leaf; /* [MASK_TREES, WT_MASK_ROWS] */
    unsigned char *bytes; /* [WT_MASK_ROWS] */
} tree_mask_scratch;

static tree_mask_facts tree_mask_facts_of(const wt_call *call) {
    tree_mask_facts facts = {
        .blocks = wt_tensor(call, 17),
        .block_count = (size_t)call->facts[18].integer,
        .columns = wt_tensor(call, 19),
        .cells = wt_tensor(call, 20),
        .bounds = wt_tensor(call, 21),
        .sets = wt_tensor(call, 22),
        .set_bits = wt_tensor(call, 23),
        .trees = wt_tensor(call, 24),
        .nodes = wt_tensor(call, 25),
        .values = wt_tensor(call, 26),
        .slots = (uint32_t)call->facts[27].integer,
        .planes = (uint32_t)call->facts[28].integer,
        .conditions = wt_tensor(call, 29),
    };
    return facts;
}

static tree_mask_scratch tree_mask_scratch_of(const wt_call *call, const tree_mask_facts *facts, size_t words) {
    tree_mask_scratch scratch;
    scratch.values = call->scratch;
    scratch.ranks = (uint32_t *)(void *)(scratch.values + WT_MASK_ROWS);
    scratch.leaf = (unsigned char *)(scratch.ranks + WT_MASK_ROWS);
    scratch.bytes = scratch.leaf + MASK_TREES * WT_MASK_ROWS;
    scratch.planes = (uint64_t *)(void *)(scratch.bytes + WT_MASK_ROWS);
    scratch.reach = scratch.planes + 8 * WORDS;
    scratch.masks = scratch.reach + (facts->slots + 1) * words;
    return scratch;
}

/* Transpose 64 words of 64 bits. */
static void tree_transpose(uint64_t *words) {
    uint64_t low = UINT64_C(0x00000000FFFFFFFF);
    for (size_t width = 32; width != 0; width /= 2, low ^= low << width)
        for (size_t at = 0; at < 64; at = ((at | width) + 1) & ~width) {
            uint64_t swapped = ((words[at] >> width) ^ words[at | width]) & low;
            words[at] ^= swapped << width;
            words[at | width] ^= swapped;
        }
}

/* The masks of the thresholds of a column: first a bit per row at its rank, then above each rank those of the higher. */
WT_INLINE void tree_mask_thresholds(const tree_mask_column *column, const tree_mask_scratch *scratch, size_t count, size_t words) {
    uint64_t *masks = scratch->masks + column->first * words;
    memset(masks, 0, (column->thresholds + 1) * words * sizeof(uint64_t));
    const uint32_t *ranks = scratch->ranks;
    size_t full = count / WT_WORD_ROWS;
    for (size_t row = 0; row < WT_WORD_ROWS; row++) /* words side by side: no write waits for the one before */
        for (size_t word = 0; word < full; word++) masks[ranks[word * WT_WORD_ROWS + row] * words + word] |= UINT64_C(1) << row;
    for (size_t row = full * WT_WORD_ROWS; row < count; row++) masks[ranks[row] * words + full] |= UINT64_C(1) << row % WT_WORD_ROWS;
    for (size_t rank = column->thresholds; rank > 1; rank--)
        for (size_t word = 0; word < words; word++) masks[(rank - 1) * words + word] |= masks[rank * words + word];
}

#ifdef WT_AVX512
WT_AVX512 static uint64_t tree_bytes_above_avx512(const unsigned char *bytes, unsigned char bound) {
    return _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(bytes), _mm512_set1_epi8((char)bound));
}
#endif

/* Whether each of 64 bytes is above a bound, as bits. */
WT_INLINE uint64_t tree_bytes_above(const unsigned char *bytes, unsigned char bound, int avx512) {
#ifdef WT_AVX512
    if (avx512) return tree_bytes_above_avx512(bytes, bound);
    uint64_t above = 0;
    for (size_t part = 0; part < WT_WORD_ROWS; part += 16) {
        __m128i over = _mm_subs_epu8(_mm_loadu_si128((const void *)(bytes + part)), _mm_set1_epi8((char)bound));
        above |= (uint64_t)(0xFFFF & ~_mm_movemask_epi8(_mm_cmpeq_epi8(over, _mm_setzero_si128()))) << part;
    }
    return above;
#else
    (void)avx512;
    uint64_t above = 0;
    for (size_t row = 0; row < WT_WORD_ROWS; row++) above |= (uint64_t)(bytes[row] > bound) << row;
    return above;
#endif
}

/* The masks of the thresholds of a column of bytes: ranks, where bounds is NULL. */
WT_INLINE void tree_mask_bytes(const tree_mask_column *column, const tree_mask_scratch *scratch, const double *bounds, size_t words, int avx512) {
    uint64_t *masks = scratch->masks + (column->first + 1) * words;
    for (size_t rank = 0; rank < column->thresholds; rank++) {
        unsigned char bound = (unsigned char)(bounds == NULL ? (double)rank : bounds[rank]);
        for (size_t word = 0; word < words; word++) masks[rank * words + word] = tree_bytes_above(scratch->bytes + word * WT_WORD_ROWS, bound, avx512);
    }
}

/* The masks of a column: of few thresholds on bytes, or their ranks as bytes; else by a bit per row. */
WT_INLINE void tree_mask_column_masks(const wt_call *call, const wt_tree_facts *trees, const tree_mask_facts *facts, const tree_mask_column *column,
                                      const tree_mask_scratch *scratch, size_t first, size_t count, size_t words, int avx512) {
    const wt_tree_column *values = trees->columns + column->column;
    if (values->reading >= WT_BYTE) {
        memcpy(scratch->bytes, wt_tree_byte_column(call, values) + first, count);
        tree_mask_bytes(column, scratch, facts->bounds + column->search.bound, words, avx512);
        return;
    }
    wt_tree_values(call, trees->float32, values, first, count, scratch->values);
    wt_tree_ranks(&column->search, facts->cells, facts->bounds, scratch->values, count, scratch->ranks);
    if (column->thresholds <= (avx512 ? MOST_COMPARED_AVX512 : MOST_COMPARED)) {
        for (size_t row = 0; row < count; row++) scratch->bytes[row] = (unsigned char)scratch->ranks[row];
        tree_mask_bytes(column, scratch, NULL, words, avx512);
    } else {
        tree_mask_thresholds(column, scratch, count, words);
    }
}

/* The masks of the sets of a column: the rows of bits of the rows' categories, transposed. */
WT_INLINE void tree_mask_of_sets(const tree_mask_facts *facts, const tree_mask_sets *sets, const tree_mask_scratch *scratch, size_t count, size_t words) {
    double last = (double)sets->last;
    for (size_t row = 0; row < count; row++)
        scratch->ranks[row] = (uint32_t)(scratch->values[row] < last ? scratch->values[row] : last) * sets->words;
    for (size_t group = 0; group < sets->words; group++)
        for (size_t word = 0; word * WT_WORD_ROWS < count; word++) {
            uint64_t bits[WT_WORD_ROWS];
            for (size_t row = 0; row < WT_WORD_ROWS; row++) {
                size_t at = word * WT_WORD_ROWS + row;
                bits[row] = at < count ? facts->set_bits[sets->bits + scratch->ranks[at] + group] : 0;
            }
            tree_transpose(bits);
            uint64_t *masks = scratch->masks + (sets->first + group * WT_WORD_ROWS) * words + word;
            for (size_t set = 0; set < WT_WORD_ROWS; set++) masks[set * words] = bits[set];
        }
}

/* The number of the leaf of each row of a tree, as bit planes. */
WT_INLINE void tree_mask_walk(const tree_mask_facts *facts, const tree_mask_tree *tree, const tree_mask_scratch *scratch, size_t words) {
    uint64_t *reach = scratch->reach, *planes = scratch->planes;
    const uint64_t *masks = scratch->masks;
    const tree_mask_node *nodes = facts->nodes + tree->first;
    for (size_t word = 0; word < words; word++) reach[word] = masks[word];
    for (size_t node = 0; node < tree->nodes; node++) {
        const uint64_t *mask = masks + (nodes[node].condition_plane >> 3) * words, *here = reach + node * words;
        uint64_t *plane = planes + (nodes[node].condition_plane & 7) * words;
        uint64_t *left = reach + nodes[node].left * words, *right = reach + nodes[node].right * words;
        uint64_t goes_left[WORDS], goes_right[WORDS];
        for (size_t word = 0; word < words; word++) goes_right[word] = here[word] & mask[word];
        for (size_t word = 0; word < words; word++) goes_left[word] = here[word] ^ goes_right[word];
        for (size_t word = 0; word < words; word++) left[word] = goes_left[word];
        for (size_t word = 0; word < words; word++) right[word] = goes_right[word];
        for (size_t word = 0; word < words; word++) goes_right[word] ^= plane[word];
        for (size_t word = 0; word < words; word++) plane[word] = goes_right[word];
    }
}

/* The same for a tree whose leaves all have one depth: going right on a level changes the plane of the level. */
WT_INLINE void tree_mask_walk_perfect(const tree_mask_facts *facts, const tree_mask_tree *tree, const tree_mask_scratch *scratch, size_t words) {
    uint64_t *reach = scratch->reach;
    const uint64_t *masks = scratch->masks;
    const uint32_t *condition = facts->conditions + tree->first;
    for (size_t word = 0; word < words; word++) reach[word] = masks[word];
    for (size_t level = 0; level < tree->depth; level++) {
        uint64_t plane[WORDS] = {0};
        const uint64_t *here = reach + ((size_t)1 << level) * words - words;
        uint64_t *below = reach + ((size_t)2 << level) * words - words;
        size_t width = (size_t)1 << level;
        if (level + 1 < tree->depth)
            for (size_t node = 0; node < width; node++, here += words, below += 2 * words) {
                const uint64_t *mask = masks + *condition++ * words;
                uint64_t goes_left[WORDS], goes_right[WORDS];
                for (size_t word = 0; word < words; word++) goes_right[word] = here[word] & mask[word];
                for (size_t word = 0; word < words; word++) goes_left[word] = here[word] ^ goes_right[word];
                for (size_t word = 0; word < words; word++) plane[word] ^= goes_right[word];
                for (size_t word = 0; word < words; word++) below[word] = goes_left[word];
                for (size_t word = 0; word < words; word++) below[words + word] = goes_right[word];
            }
        else
            for (size_t node = 0; node < width; node++, here += words) {
                const uint64_t *mask = masks + *condition++ * words;
                for (size_t word = 0; word < words; word++) plane[word] ^= here[word] & mask[word];
            }
        for (size_t word = 0; word < words; word++) scratch->planes[level * words + word] = plane[word];
    }
}

/* Bytes of 0 and 1 from the bits of a byte. */
#define TREE_SPREAD(bits) (((((uint64_t)(bits) & 0x7F) * UINT64_C(0x0002040810204081)) & UINT64_C(0x0001010101010101)) | ((uint64_t)(bits) >> 7 << 56))

/* Bit planes as a number per row. */
WT_INLINE void tree_mask_leaves(const uint64_t *planes, size_t plane_count, size_t words, size_t count, unsigned char *leaf) {
    for (size_t word = 0; word * WT_WORD_ROWS < count; word++)
        for (size_t byte = 0; byte < 8; byte++) {
            uint64_t leaves = 0;
            for (size_t plane = 0; plane < plane_count; plane++)
                leaves |= TREE_SPREAD(planes[plane * words + word] >> (8 * byte) & 0xFF) << plane;
            for (size_t row = 0; row < 8; row++) leaf[word * WT_WORD_ROWS + byte * 8 + row] = (unsigned char)(leaves >> (8 * row));
        }
}

#ifdef WT_AVX2
/* The same: each byte of a register tests one bit of the four bytes of a plane. */
WT_AVX2 static void tree_mask_leaves_avx2(const uint64_t *planes, size_t plane_count, size_t words, size_t count, unsigned char *leaf) {
    const __m256i byte_of_row = _mm256_setr_epi64x(0, INT64_C(0x0101010101010101), INT64_C(0x0202020202020202), INT64_C(0x0303030303030303));
    const __m256i bit_of_row = _mm256_set1_epi64x((int64_t)UINT64_C(0x8040201008040201));
    for (size_t row = 0; row < count; row += 32) {
        __m256i number = _mm256_setzero_si256();
        for (size_t plane = 0; plane < plane_count; plane++) {
            int bits = (int)(uint32_t)(planes[plane * words + row / WT_WORD_ROWS] >> row % WT_WORD_ROWS);
            __m256i tested = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of_row), bit_of_row);
            __m256i set = _mm256_cmpeq_epi8(tested, bit_of_row);
            number = _mm256_or_si256(number, _mm256_and_si256(set, _mm256_set1_epi8((char)(1 << plane))));
        }
        _mm256_storeu_si256((void *)(leaf + row), number);
    }
}
#endif

static void tree_mask_leaves_of(const tree_mask_facts *facts, const tree_mask_scratch *scratch, size_t count, size_t words, unsigned char *leaf) {
#ifdef WT_AVX2
    if (WT_HAS_AVX2) {
        tree_mask_leaves_avx2(scratch->planes, facts->planes, words, count, leaf);
        return;
    }
#endif
    tree_mask_leaves(scratch->planes, facts->planes, words, count, leaf);
}

/* The values of the leaves of several trees, which are added at once: each sum is read and written once. */
typedef struct {
    const double *values[MASK_TREES];
    size_t trees;
    uint32_t score;
} tree_mask_sum;

WT_INLINE void tree_mask_add(const tree_mask_sum *sum, const unsigned char *leaf, size_t trees, double *y, size_t count) {
    for (size_t row = 0; row < count; row++) {
        double value = y[row];
        for (size_t tree = 0; tree < trees; tree++) value += sum->values[tree][leaf[tree * WT_MASK_ROWS + row]];
        y[row] = value;
    }
}

WT_INLINE void tree_mask_add_sum(const wt_call *call, tree_mask_sum *sum, const tree_mask_scratch *scratch, size_t first, size_t count) {
    double *y = wt_output(call, sum->score) + first;
    if (sum->trees == MASK_TREES)
        tree_mask_add(sum, scratch->leaf, MASK_TREES, y, count);
    else
        tree_mask_add(sum, scratch->leaf, sum->trees, y, count);
    sum->trees = 0;
}

#ifdef WT_AVX512
/* Both at once, where a leaf has a value: tables of 16 values are looked up in registers. */
WT_AVX512 static void tree_mask_add_avx512(const uint64_t *planes, size_t plane_count, const double *values, double *y, size_t count, size_t words) {
    __m512d low[8], high[8];
    size_t tables = plane_count <= 4 ? 1 : (size_t)1 << (plane_count - 4);
    if (tables <= 8)
        for (size_t table = 0; table < tables; table++) {
            low[table] = _mm512_loadu_pd(values + 16 * table);
            high[table] = _mm512_loadu_pd(values + 16 * table + 8);
        }
    for (size_t word = 0; word * WT_WORD_ROWS < count; word++) {
        __m512i number = _mm512_setzero_si512();
        for (size_t plane = 0; plane < plane_count; plane++)
            number = _mm512_mask_add_epi8(number, planes[plane * words + word], number, _mm512_set1_epi8((char)(1 << plane)));
        uint64_t leaves[8];
        _mm512_storeu_si512(leaves, number);
        const unsigned char *fourth = (const unsigned char *)(planes + 4 * words + word);
        for (size_t byte = 0; byte < 8 && word * WT_WORD_ROWS + byte * 8 < count; byte++, y += 8) {
            size_t rest = count - word * WT_WORD_ROWS - byte * 8;
            __mmask8 rows = (__mmask8)(rest < 8 ? (1u << rest) - 1 : 0xFF);
            __m512i leaf = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)(leaves + byte)));
            __m512d value;
#define LOOK_UP(table) _mm512_permutex2var_pd(low[table], leaf, high[table])
#define SELECT(plane, zero, set) _mm512_mask_blend_pd(fourth[(plane - 4) * words * 8 + byte], zero, set)
            if (tables == 1)
                value = LOOK_UP(0);
            else if (tables == 2)
                value = SELECT(4, LOOK_UP(0), LOOK_UP(1));
            else if (tables == 4)
                value = SELECT(5, SELECT(4, LOOK_UP(0), LOOK_UP(1)), SELECT(4, LOOK_UP(2), LOOK_UP(3)));
            else
                value = _mm512_i64gather_pd(leaf, values, 8);
#undef SELECT
#undef LOOK_UP
            _mm512_mask_storeu_pd(y, rows, _mm512_add_pd(_mm512_maskz_loadu_pd(rows, y), value));
        }
    }
}
#endif

WT_INLINE void tree_masks(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count, size_t words, int avx512) {
    tree_mask_facts facts = tree_mask_facts_of(call);
    tree_mask_scratch scratch = tree_mask_scratch_of(call, &facts, words);
    tree_mask_sum sum = {.trees = 0};
    for (const tree_mask_block *block = facts.blocks; block < facts.blocks + facts.block_count; block++) {
        memset(scratch.masks, 0xFF, words * sizeof(uint64_t));
        for (const tree_mask_column *column = facts.columns + block->column; column < facts.columns + block->column + block->columns; column++) {
            tree_mask_column_masks(call, trees, &facts, column, &scratch, first, count, words, avx512);
        }
        for (const tree_mask_sets *sets = facts.sets + block->sets; sets < facts.sets + block->sets + block->set_columns; sets++) {
            wt_tree_values(call, trees->float32, trees->columns + sets->column, first, count, scratch.values);
            tree_mask_of_sets(&facts, sets, &scratch, count, words);
        }
        for (const tree_mask_tree *tree = facts.trees + block->tree; tree < facts.trees + block->tree + block->trees; tree++) {
            memset(scratch.planes, 0, facts.planes * words * sizeof(uint64_t));
            if (tree->kind == TREE_PERFECT)
                tree_mask_walk_perfect(&facts, tree, &scratch, words);
            else
                tree_mask_walk(&facts, tree, &scratch, words);
#ifdef WT_AVX512
            if (avx512 && trees->vector == NULL) {
                tree_mask_add_avx512(scratch.planes, facts.planes, facts.values + tree->leaf, wt_output(call, tree->score) + first, count, words);
                continue;
            }
#endif
            if (trees->vector != NULL) {
                tree_mask_leaves_of(&facts, &scratch, count, words, scratch.leaf);
                for (size_t score = 0; score < trees->scores; score++) {
                    const double *values = facts.values + tree->leaf * trees->scores + score;
                    double *y = wt_output(call, score) + first;
                    for (size_t row = 0; row < count; row++) y[row] += values[scratch.leaf[row] * trees->scores];
                }
                continue;
            }
            if (sum.trees == MASK_TREES || (sum.trees != 0 && sum.score != tree->score)) tree_mask_add_sum(call, &sum, &scratch, first, count);
            tree_mask_leaves_of(&facts, &scratch, count, words, scratch.leaf + sum.trees * WT_MASK_ROWS);
            sum.score = tree->score;
            sum.values[sum.trees++] = facts.values + tree->leaf;
        }
    }
    if (sum.trees != 0) tree_mask_add_sum(call, &sum, &scratch, first, count);
}

WT_PROCESSORS static void tree_masks_narrow(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    tree_masks(call, trees, first, count, 1, 0);
}

WT_PROCESSORS static void tree_masks_wide(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    tree_masks(call, trees, first, count, WORDS, 0);
}

#ifdef WT_AVX512
WT_AVX512 static void tree_masks_narrow_avx512(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    tree_masks(call, trees, first, count, 1, 1);
}

WT_AVX512 static void tree_masks_wide_avx512(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    tree_masks(call, trees, first, count, WORDS, 1);
}
#endif

void wt_tree_masks(const wt_call *call, const wt_tree_facts *trees, size_t first, size_t count) {
    int narrow = count <= WT_WORD_ROWS;
#ifdef WT_AVX512
    if (WT_HAS_AVX512) {
        (narrow ? tree_masks_narrow_avx512 : tree_masks_wide_avx512)(call, trees, first, count);
        return;
    }
#endif
    (narrow ? tree_masks_narrow : tree_masks_wide)(call, trees, first, count);
}
