/*
 * Interactions of columns: the cell of a row, and tables with a row per cell.
 *
 * A cell is the number that has the codes of the columns as digits, modulo the count of cells. Where cells are few, or
 * most of them are stored, the table has a row for each. Else a perfect hash gives each stored cell a slot: hash + the
 * displacement of its bucket. The slot holds the cell too, to tell others from it; these have the row behind all slots.
 * So a look-up has no branch, and those of several rows wait for memory side by side.
 */
#include "runtime.h"

#ifdef __GNUC__
#define WT_PREFETCH(address) __builtin_prefetch(address)
#else
#define WT_PREFETCH(address) (void)(address)
#endif

typedef struct {
    uint32_t column;
    uint32_t wraps; /* whether the number so far is taken modulo the count, so that it stays below 2^53 */
    double size;    /* codes of the column */
} cell_digit;

typedef struct {
    double count, inverse; /* cells, and 1 / count */
    uint32_t digit, digits;
    uint32_t wraps;    /* whether the number is taken modulo the count at the end */
    uint32_t row;      /* place of the first row of its table */
    uint32_t slots;    /* a power of two, or 0 where each cell has a row */
    uint32_t slot;     /* place of the first slot */
    uint32_t bucket;   /* place of the first bucket */
    uint32_t shift;    /* from a hash to its bucket */
    uint32_t factor;   /* of the hash, odd */
    uint32_t unused;
} cell_interaction;

typedef struct {
    const cell_interaction *interactions;
    size_t count;
    const cell_digit *digits;
    const uint32_t *displacements; /* of buckets */
    const uint32_t *cells;         /* of slots */
} cell_facts;

/* What a call needs to remember. */
typedef struct {
    double *numbers;  /* [rows] */
    uint32_t *hashes; /* [rows] */
    uint32_t *rows;   /* [rows]: cells, then rows of the table */
} cell_scratch;

static cell_facts cell_facts_of(const wt_call *call) {
    cell_facts facts = {
        .interactions = wt_tensor(call, 0),
        .count = (size_t)call->facts[1].integer,
        .digits = wt_tensor(call, 2),
        .displacements = wt_tensor(call, 3),
        .cells = wt_tensor(call, 4),
    };
    return facts;
}

static cell_scratch cell_scratch_of(const wt_call *call) {
    cell_scratch scratch = {.numbers = call->scratch};
    scratch.hashes = (uint32_t *)(void *)(scratch.numbers + call->stride);
    scratch.rows = scratch.hashes + call->stride;
    return scratch;
}

/* numbers < 2^53, modulo count. The quotient is wrong by one at most. */
static inline double cell_modulo(double number, double count, double inverse) {
    double rest = number - (double)(int64_t)(number * inverse) * count;
    rest += rest < 0.0 ? count : 0.0;
    return rest - (rest >= count ? count : 0.0);
}

/* The cells of rows, and their hashes. */
WT_PROCESSORS static void cell_numbers(const wt_call *call, const cell_interaction *interaction, const cell_digit *digits, const cell_scratch *scratch) {
    double *restrict numbers = scratch->numbers, count = interaction->count, inverse = interaction->inverse;
    uint32_t *restrict hashes = scratch->hashes, *restrict cells = scratch->rows;
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
    if (interaction->slots == 0) return;
    for (size_t row = 0; row < rows; row++) {
        uint32_t hash = cells[row] * interaction->factor;
        hashes[row] = (hash ^ hash >> 15) * UINT32_C(0x2C1B3C6D);
    }
}

/* The rows of the table that an interaction has for the rows of a call; row_bytes: of a row of the table. Addresses are
 * asked for before any of them is read: to wait for memory one after the other took twice as long. */
static const uint32_t *cell_rows(const wt_call *call, const cell_facts *facts, const cell_interaction *interaction, const void *table, size_t row_bytes) {
    cell_scratch scratch = cell_scratch_of(call);
    cell_numbers(call, interaction, facts->digits + interaction->digit, &scratch);
    const char *restrict first = table;
    uint32_t *restrict rows = scratch.rows, *restrict slot = scratch.hashes;
    uint32_t slots = interaction->slots, shift = interaction->shift;
    size_t count = call->rows;
    if (slots != 0) {
        const uint32_t *displacements = facts->displacements + interaction->bucket, *cells = facts->cells + interaction->slot;
        for (size_t row = 0; row < count; row++) {
            slot[row] = (slot[row] + displacements[slot[row] >> shift]) & (slots - 1);
            WT_PREFETCH(cells + slot[row]);
        }
        for (size_t row = 0; row < count; row++) {
            uint32_t stored = (uint32_t)0 - (cells[slot[row]] == rows[row]); /* all bits or none: no branch to guess */
            rows[row] = (slot[row] & stored) | (slots & ~stored);
        }
    }
    for (size_t row = 0; row < count; row++) WT_PREFETCH(first + rows[row] * row_bytes);
    return rows;
}

/* facts: cell_facts; table uint8 [rows, width]; width. The inputs are codes. A column out holds the bytes of eight
 * features, one feature after the other; feature width p + f is table[row of interaction p, f] */
void wt_cell_bytes(const wt_call *call) {
    cell_facts facts = cell_facts_of(call);
    size_t width = (size_t)call->facts[6].integer, count = call->rows;
    for (size_t at = 0; at < facts.count; at++) {
        const unsigned char *table = (const unsigned char *)wt_tensor(call, 5) + facts.interactions[at].row * width;
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
        const double *table = (const double *)wt_tensor(call, 5) + facts.interactions[at].row * outputs;
        const uint32_t *restrict rows = cell_rows(call, &facts, facts.interactions + at, table, outputs * sizeof(double));
        for (size_t output = 0; output < outputs; output++) {
            double *restrict y = wt_output(call, output);
            for (size_t row = 0; row < count; row++) y[row] += table[rows[row] * outputs + output];
        }
    }
}
