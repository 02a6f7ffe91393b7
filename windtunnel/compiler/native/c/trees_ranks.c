/* Values as ranks among the thresholds of their column. */
#include "trees.h"

/* The cell of each value. */
WT_PROCESSORS static void tree_cells(const wt_tree_search *search, const double *restrict values, size_t count, uint32_t *restrict cell) {
    double low = search->low, scale = search->scale, last = (double)search->last;
    for (size_t row = 0; row < count; row++) {
        double at = (values[row] - low) * scale;
        at = at > 0.0 ? at : 0.0;
        cell[row] = (uint32_t)(int32_t)(at < last ? at : last);
    }
}

/* One value after the other, for any processor: to gather eight at once takes four times as long. */
WT_INLINE void tree_search(const uint16_t *cells, const double *bounds, const double *values, size_t count, uint32_t *ranks, uint32_t steps) {
    for (size_t row = 0; row < count; row++) {
        double x = values[row];
        uint32_t rank = cells[ranks[row]];
        for (uint32_t step = UINT32_C(1) << steps >> 1; step != 0; step /= 2) rank += (uint32_t)(x > bounds[rank + step - 1]) * step;
        ranks[row] = rank;
    }
}

void wt_tree_ranks(const wt_tree_search *search, const uint16_t *cells, const double *bounds, const double *values, size_t count, uint32_t *ranks) {
    cells += search->cell;
    bounds += search->bound;
    tree_cells(search, values, count, ranks);
    switch (search->steps) { /* so that the loops over few steps are unrolled */
    case 1: tree_search(cells, bounds, values, count, ranks, 1); break;
    case 2: tree_search(cells, bounds, values, count, ranks, 2); break;
    default: tree_search(cells, bounds, values, count, ranks, search->steps);
    }
}

wt_tree_bytes wt_tree_bytes_of(const wt_call *call, size_t fact) {
    wt_tree_bytes columns = {
        .count = (size_t)call->facts[fact].integer,
        .low = wt_tensor(call, fact + 1),
        .scale = wt_tensor(call, fact + 2),
        .last = wt_tensor(call, fact + 3),
        .cell = wt_tensor(call, fact + 4),
        .bound = wt_tensor(call, fact + 5),
        .steps = wt_tensor(call, fact + 6),
        .value = wt_tensor(call, fact + 7),
        .set = wt_tensor(call, fact + 8),
        .few = wt_tensor(call, fact + 9),
        .cells = wt_tensor(call, fact + 10),
        .bounds = wt_tensor(call, fact + 11),
        .goes_right = wt_tensor(call, fact + 12),
        .most_steps = (uint32_t)call->facts[fact + 13].integer,
        .any_set = call->facts[fact + 14].integer != 0,
    };
    return columns;
}

/* No branch depends on a value: a search that goes on for a step or two takes less time than a wrong guess. */
WT_PROCESSORS void wt_tree_row_bytes(const wt_tree_bytes *columns, const double *values, unsigned char *bytes) {
    enum { COLUMNS_AT_ONCE = 64 };
    for (size_t first = 0; first < columns->count; first += COLUMNS_AT_ONCE) {
        size_t count = columns->count - first < COLUMNS_AT_ONCE ? columns->count - first : COLUMNS_AT_ONCE;
        double x[COLUMNS_AT_ONCE], at[COLUMNS_AT_ONCE];
        uint32_t rank[COLUMNS_AT_ONCE];
        for (size_t k = 0; k < count; k++) x[k] = values[columns->value[first + k]];
        for (size_t k = 0; k < count; k++) {
            double cell = (x[k] - columns->low[first + k]) * columns->scale[first + k], last = columns->last[first + k];
            cell = cell > 0.0 ? cell : 0.0;
            at[k] = cell < last ? cell : last;
        }
        for (size_t k = 0; k < count; k++) rank[k] = (uint32_t)(int32_t)at[k];
        for (size_t k = 0; k < count; k++) rank[k] = columns->cells[columns->cell[first + k] + rank[k]];
        for (uint32_t step = UINT32_C(1) << columns->most_steps >> 1; step != 0; step /= 2)
            for (size_t k = 0; k < count; k++) rank[k] += x[k] > columns->bounds[columns->bound[first + k] + rank[k] + step - 1] ? step : 0;
        for (size_t k = 0; k < count; k++) bytes[first + k] = (unsigned char)rank[k];
    }
    if (!columns->any_set) return;
    for (size_t column = 0; column < columns->count; column++)
        if (columns->set[column] != UINT32_MAX) bytes[column] = wt_tree_in_set(columns, column, values[columns->value[column]]);
}
