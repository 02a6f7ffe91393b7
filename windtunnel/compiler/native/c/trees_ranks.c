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
        for (uint32_t step = UINT32_C(1) << steps >> 1; step != 0; step /= 2) rank += x > bounds[rank + step - 1] ? step : 0;
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
