/* The loop over blocks of rows and steps. */
#include "runtime.h"

static wt_operation *const OPERATIONS[] = {
#define WT_OPERATION(name) wt_##name,
#include "operations.h"
#undef WT_OPERATION
};

static size_t at_most(size_t value, size_t limit) {
    return value < limit ? value : limit;
}

/* One row stands close together. Columns of more rows start at multiples of 64 bytes, and not all at the same place of a
 * page: these share few lines of the cache. */
static size_t stride_of(size_t rows) {
    size_t stride = (rows + 7) / 8 * 8;
    return rows == 1 ? 1 : stride + (stride % 64 == 0 ? 8 : 0);
}

static size_t scratch_offset(const wt_program *program, size_t rows) {
    return (program->columns * stride_of(rows) * sizeof(double) + 63) / 64 * 64;
}

size_t wt_workspace_bytes(const wt_program *program, size_t rows) {
    return scratch_offset(program, at_most(rows, program->block_rows)) + program->scratch_bytes;
}

/* Rows that are read together. Few of them: memory is read in its order. */
enum { READ_ROWS = 4 };

/* Read the numbers and ids of count rows of a block from first on, of all rows from start on. */
WT_INLINE void read_some(const wt_program *program, const wt_rows *rows, size_t start, const wt_call *block, size_t first, size_t count) {
    const uint32_t *places = (const uint32_t *)(const void *)(block->image + program->input_columns);
    double value[READ_ROWS];
    for (size_t column = 0; column < program->numbers; column++) {
        if (places[column] == WT_UNREAD) continue;
        const double *from = rows->numbers + (ptrdiff_t)(start + first) * rows->number_row + (ptrdiff_t)column * rows->number_column;
        double *to = block->workspace + places[column] * block->stride + first;
        for (size_t row = 0; row < count; row++) value[row] = from[(ptrdiff_t)row * rows->number_row];
        for (size_t row = 0; row < count; row++) to[row] = value[row];
    }
    for (size_t column = 0; column < program->ids; column++) {
        uint32_t place = places[program->numbers + column];
        if (place == WT_UNREAD) continue;
        const int64_t *from = rows->ids + (ptrdiff_t)(start + first) * rows->id_row + (ptrdiff_t)column * rows->id_column;
        double *to = block->workspace + place * block->stride + first;
        for (size_t row = 0; row < count; row++) value[row] = (double)from[(ptrdiff_t)row * rows->id_row];
        for (size_t row = 0; row < count; row++) to[row] = value[row];
    }
}

static void read_rows(const wt_program *program, const wt_rows *rows, size_t start, const wt_call *block) {
    size_t first = 0;
    for (; first + READ_ROWS <= block->rows; first += READ_ROWS) read_some(program, rows, start, block, first, READ_ROWS);
    for (; first < block->rows; first++) read_some(program, rows, start, block, first, 1);
}

/* Four columns of four rows as rows: to[j][k] = from[k][j]. */
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define WT_TURNS 4
typedef double four_numbers __attribute__((vector_size(32), aligned(8), may_alias));
WT_INLINE void turn(const double *const from[WT_TURNS], double *const to[WT_TURNS]) {
    four_numbers column[WT_TURNS];
    for (size_t k = 0; k < WT_TURNS; k++) column[k] = *(const four_numbers *)(const void *)from[k];
    const four_numbers even01 = __builtin_shufflevector(column[0], column[1], 0, 4, 2, 6), odd01 = __builtin_shufflevector(column[0], column[1], 1, 5, 3, 7);
    const four_numbers even23 = __builtin_shufflevector(column[2], column[3], 0, 4, 2, 6), odd23 = __builtin_shufflevector(column[2], column[3], 1, 5, 3, 7);
    *(four_numbers *)(void *)to[0] = __builtin_shufflevector(even01, even23, 0, 1, 4, 5);
    *(four_numbers *)(void *)to[1] = __builtin_shufflevector(odd01, odd23, 0, 1, 4, 5);
    *(four_numbers *)(void *)to[2] = __builtin_shufflevector(even01, even23, 2, 3, 6, 7);
    *(four_numbers *)(void *)to[3] = __builtin_shufflevector(odd01, odd23, 2, 3, 6, 7);
}
#endif
#endif

WT_PROCESSORS static void write_rows(const wt_program *program, double *out, const wt_call *block) {
    const uint32_t *places = (const uint32_t *)(const void *)(block->image + program->output_columns);
    size_t column = 0, outputs = program->outputs;
#ifdef WT_TURNS
    for (; column + WT_TURNS <= outputs; column += WT_TURNS) {
        const double *from[WT_TURNS];
        for (size_t k = 0; k < WT_TURNS; k++) from[k] = block->workspace + places[column + k] * block->stride;
        size_t row = 0;
        for (; row + WT_TURNS <= block->rows; row += WT_TURNS) {
            double *to[WT_TURNS];
            for (size_t k = 0; k < WT_TURNS; k++) to[k] = out + (row + k) * outputs + column;
            turn(from, to);
            for (size_t k = 0; k < WT_TURNS; k++) from[k] += WT_TURNS;
        }
        for (; row < block->rows; row++)
            for (size_t k = 0; k < WT_TURNS; k++) out[row * outputs + column + k] = *from[k]++;
    }
#endif
    for (; column < outputs; column++) {
        const double *from = block->workspace + places[column] * block->stride;
        for (size_t row = 0; row < block->rows; row++) out[row * outputs + column] = from[row];
    }
}

void wt_run(const wt_program *program, const wt_rows *rows, void *workspace) {
    const unsigned char *image = (const unsigned char *)program;
    const wt_step *steps = (const wt_step *)(const void *)(image + program->steps);
    wt_call call = {.image = image, .workspace = workspace};
    for (size_t first = 0; first < rows->rows; first += call.rows) {
        call.rows = at_most(rows->rows - first, program->block_rows);
        call.stride = stride_of(call.rows);
        call.scratch = (unsigned char *)workspace + scratch_offset(program, call.rows);
        read_rows(program, rows, first, &call);
        for (size_t step = 0; step < program->step_count; step++) {
            call.step = steps + step;
            call.facts = (const wt_fact *)(const void *)(image + steps[step].facts);
            call.columns = (const uint32_t *)(const void *)(image + steps[step].columns);
            OPERATIONS[steps[step].operation](&call);
        }
        write_rows(program, rows->out + first * program->outputs, &call);
    }
}
