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

static void write_rows(const wt_program *program, double *out, const wt_call *block) {
    const uint32_t *places = (const uint32_t *)(const void *)(block->image + program->output_columns);
    for (size_t column = 0; column < program->outputs; column++) {
        const double *from = block->workspace + places[column] * block->stride;
        for (size_t row = 0; row < block->rows; row++) out[row * program->outputs + column] = from[row];
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
