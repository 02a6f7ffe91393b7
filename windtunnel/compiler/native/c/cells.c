/*
 * Interactions of columns: the cell of a row, and tables with a row per cell.
 *
 * A cell is the number that has the codes of the columns as digits, modulo the count of cells. Where cells are few, or
 * most of them are stored, the table has a row for each. Else it has the stored ones in their order, behind row 0, which
 * is that of all others. The row of a cell is then how many stored ones there are up to it. Words of 32 bits tell: a bit
 * per cell, in words per group of 32 cells. Few groups have a stored cell, and only these have a word, behind word 0 of
 * all others. Words of a bit per group tell its number in the same way. Neighbouring cells share lines of the cache,
 * which decides how long a look-up takes. It has no branch, and those of several rows wait for memory side by side.
 */
#include "runtime.h"

#ifdef __GNUC__
#define WT_PREFETCH(address) __builtin_prefetch(address)
#define WT_COUNT_BITS(bits) (uint32_t)__builtin_popcount(bits)
#else
#define WT_PREFETCH(address) (void)(address)
#define WT_COUNT_BITS(bits) cell_count_bits(bits)
static inline uint32_t cell_count_bits(uint32_t bits) {
    bits -= bits >> 1 & UINT32_C(0x55555555);
    bits = (bits & UINT32_C(0x33333333)) + (bits >> 2 & UINT32_C(0x33333333));
    return ((bits + (bits >> 4)) & UINT32_C(0x0F0F0F0F)) * UINT32_C(0x01010101) >> 24;
}
#endif

typedef struct {
    uint32_t column;
    uint32_t wraps; /* whether the number so far is taken modulo the count, so that it stays below 2^53 */
    double size;    /* codes of the column */
} cell_digit;

typedef struct {
    double count, inverse; /* cells, and 1 / count */
    uint32_t digit, digits;
    uint32_t wraps;               /* whether the number is taken modulo the count at the end */
    uint32_t row;                 /* place of the first row of its table */
    uint32_t all;                 /* whether each cell has a row */
    uint32_t of_groups, of_cells; /* places of the first words */
    uint32_t unused;
} cell_interaction;

typedef struct {
    uint32_t bits;   /* which of 32 are stored */
    uint32_t before; /* how many are, in the words before this one */
} cell_word;

typedef struct {
    const cell_interaction *interactions;
    size_t count;
    const cell_digit *digits;
    const cell_word *words;
} cell_facts;

/* What a call needs to remember. */
typedef struct {
    double *numbers;  /* [rows] */
    uint32_t *groups; /* [rows] */
    uint32_t *rows;   /* [rows]: cells, then rows of the table */
} cell_scratch;

static cell_facts cell_facts_of(const wt_call *call) {
    cell_facts facts = {
        .interactions = wt_tensor(call, 0),
        .count = (size_t)call->facts[1].integer,
        .digits = wt_tensor(call, 2),
        .words = wt_tensor(call, 3),
    };
    return facts;
}

static cell_scratch cell_scratch_of(const wt_call *call) {
    cell_scratch scratch = {.numbers = call->scratch};
    scratch.groups = (uint32_t *)(void *)(scratch.numbers + call->stride);
    scratch.rows = scratch.groups + call->stride;
    return scratch;
}

/* numbers < 2^53, modulo count. The quotient is wrong by one at most. */
static inline double cell_modulo(double number, double count, double inverse) {
    double rest = number - (double)(int64_t)(number * inverse) * count;
    rest += rest < 0.0 ? count : 0.0;
    return rest - (rest >= count ? count : 0.0);
}

/* The cells of rows. */
WT_PROCESSORS static void cell_numbers(const wt_call *call, const cell_interaction *interaction, const cell_digit *digits, const cell_scratch *scratch) {
    double *restrict numbers = scratch->numbers, count = interaction->count, inverse = interaction->inverse;
    uint32_t *restrict cells = scratch->rows;
    size_t rows = call->rows;
    for (size_t row = 0; row < rows; row++) numbers[row] = 0.0;
    for (const cell_digit *digit = digits; digit < digits + interaction->digits; digit++) {
        const double *restrict codes = wt_input(call, digit->column);
        double size = digit->size, last = size - 1.0;
        if (digit->wraps)
            for (size_t row = 0; row < rows; row++) numbers[row] = cell_modulo(numbers[row], count, inverse);
        for (size_t row = 0; row < rows; row++) {
            double code = codes[row] > 0.0 ? codes[row] : 0.0;
            numbers[row] = numbers[row] * size + (code < last ? code : last);
        }
    }
    if (interaction->wraps)
        for (size_t row = 0; row < rows; row++) numbers[row] = cell_modulo(numbers[row], count, inverse);
    for (size_t row = 0; row < rows; row++) cells[row] = (uint32_t)(int32_t)numbers[row];
}

/* The number of a stored place, from 1 up, or 0 where it is not stored. The word is that of place / 32. */
static inline uint32_t cell_number(const cell_word *word, uint32_t place) {
    uint32_t up_to = word->bits << (31 - place % 32);
    uint32_t stored = (uint32_t)0 - (up_to >> 31); /* all bits or none: no branch to guess */
    return (word->before + WT_COUNT_BITS(up_to)) & stored;
}

/* The rows of the table that an interaction has for the rows of a call; row_bytes: of a row of the table. Addresses are
 * asked for before any of them is read: to wait for memory one after the other took twice as long. */
WT_PROCESSORS static const uint32_t *cell_rows(const wt_call *call, const cell_facts *facts, const cell_interaction *interaction, const void *table, size_t row_bytes) {
    cell_scratch scratch = cell_scratch_of(call);
    cell_numbers(call, interaction, facts->digits + interaction->digit, &scratch);
    const char *restrict first = table;
    uint32_t *restrict rows = scratch.rows, *restrict groups = scratch.groups;
    size_t count = call->rows;
    if (!interaction->all) {
        const cell_word *restrict of_groups = facts->words + interaction->of_groups, *restrict of_cells = facts->words + interaction->of_cells;
        for (size_t row = 0; row < count; row++) {
            groups[row] = cell_number(of_groups + rows[row] / 1024, rows[row] / 32);
            WT_PREFETCH(of_cells + groups[row]);
        }
        for (size_t row = 0; row < count; row++) {
            rows[row] = cell_number(of_cells + groups[row], rows[row]);
            WT_PREFETCH(first + rows[row] * row_bytes);
        }
        return rows;
    }
    for (size_t row = 0; row < count; row++) WT_PREFETCH(first + rows[row] * row_bytes);
    return rows;
}

/* facts: cell_facts; table uint8 [rows, width]; width. The inputs are codes. A column out holds the bytes of eight
 * features, one feature after the other; feature width p + f is table[row of interaction p, f] */
void wt_cell_bytes(const wt_call *call) {
    cell_facts facts = cell_facts_of(call);
    size_t width = (size_t)call->facts[5].integer, count = call->rows;
    for (size_t at = 0; at < facts.count; at++) {
        const unsigned char *table = (const unsigned char *)wt_tensor(call, 4) + facts.interactions[at].row * width;
        const uint32_t *restrict rows = cell_rows(call, &facts, facts.interactions + at, table, width);
        for (size_t feature = 0; feature < width; feature++) {
            size_t place = at * width + feature;
            unsigned char *restrict y = (unsigned char *)wt_output(call, place / 8) + place % 8 * call->stride;
            for (size_t row = 0; row < count; row++) y[row] = table[rows[row] * width + feature];
        }
    }
}

/* Columns of bytes, eight in one, as columns of numbers. */
void wt_unpack_bytes(const wt_call *call) {
    for (size_t output = 0; output < call->step->outputs; output++) {
        const unsigned char *x = (const unsigned char *)wt_input(call, output / 8) + output % 8 * call->stride;
        for (size_t row = 0; row < call->rows; row++) wt_output(call, output)[row] = x[row];
    }
}

/* facts: cell_facts; table [rows, outputs]. The inputs are codes. y_k = the sum over interactions of table[row, k] */
void wt_cell_sums(const wt_call *call) {
    cell_facts facts = cell_facts_of(call);
    size_t outputs = call->step->outputs, count = call->rows;
    for (size_t output = 0; output < outputs; output++)
        for (size_t row = 0; row < count; row++) wt_output(call, output)[row] = 0.0;
    for (size_t at = 0; at < facts.count; at++) {
        const double *table = (const double *)wt_tensor(call, 4) + facts.interactions[at].row * outputs;
        const uint32_t *restrict rows = cell_rows(call, &facts, facts.interactions + at, table, outputs * sizeof(double));
        for (size_t output = 0; output < outputs; output++) {
            double *restrict y = wt_output(call, output);
            for (size_t row = 0; row < count; row++) y[row] += table[rows[row] * outputs + output];
        }
    }
}
