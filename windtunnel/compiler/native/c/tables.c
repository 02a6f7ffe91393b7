/* Operations that look up rows of tables. */
#include <string.h>

#include "runtime.h"

/* facts: table [tables, width, rows], tables, rows. tables is 1, or one for each column in. The outputs of a column are
 * the row of its table that its number names: y_k = table[k, x] */
WT_PROCESSORS void wt_look_up(const wt_call *call) {
    const double *table = wt_tensor(call, 0);
    size_t tables = (size_t)call->facts[1].integer, size = (size_t)call->facts[2].integer;
    size_t inputs = call->step->inputs, width = call->step->outputs / inputs;
    for (size_t column = 0; column < inputs; column++) {
        const double *restrict x = wt_input(call, column);
        for (size_t output = 0; output < width; output++) {
            const double *restrict from = table + ((tables == 1 ? 0 : column * width) + output) * size;
            double *restrict y = wt_output(call, column * width + output);
            for (size_t row = 0; row < call->rows; row++) y[row] = from[wt_index(x[row], size)];
        }
    }
}

/* facts: bias [outputs], table [outputs, rows], rows. y_k = bias_k + the sum over the columns of table[k, x] */
WT_PROCESSORS void wt_look_up_sum(const wt_call *call) {
    const double *bias = wt_tensor(call, 0), *table = wt_tensor(call, 1);
    size_t size = (size_t)call->facts[2].integer;
    for (size_t output = 0; output < call->step->outputs; output++) {
        const double *restrict from = table + output * size;
        double *restrict y = wt_output(call, output);
        for (size_t row = 0; row < call->rows; row++) y[row] = 0;
        for (size_t column = 0; column < call->step->inputs; column++) {
            const double *restrict x = wt_input(call, column);
            for (size_t row = 0; row < call->rows; row++) y[row] += from[wt_index(x[row], size)];
        }
        for (size_t row = 0; row < call->rows; row++) y[row] += bias[output];
    }
}

/* facts: column int64 [rows], rows, number int64 [outputs]. y_k = 1 where column[x] is number_k, else 0 */
void wt_one_hot(const wt_call *call) {
    const int64_t *columns = wt_tensor(call, 0), *number = wt_tensor(call, 2);
    size_t size = (size_t)call->facts[1].integer;
    const double *x = wt_input(call, 0);
    for (size_t output = 0; output < call->step->outputs; output++) {
        double *y = wt_output(call, output);
        for (size_t row = 0; row < call->rows; row++) y[row] = columns[wt_index(x[row], size)] == number[output];
    }
}

/* Eight numbers side by side; in words of the compiler, which otherwise adds rows side by side and takes longer. */
enum { WT_SUMS = 8 };
#ifdef __GNUC__
typedef double table_row __attribute__((vector_size(WT_SUMS * sizeof(double))));
#define TABLE_ROW_ADD(sum, row) ((sum) += (row))
#else
typedef struct {
    double number[WT_SUMS];
} table_row;
#define TABLE_ROW_ADD(sum, row) do for (size_t k = 0; k < WT_SUMS; k++) (sum).number[k] += (row).number[k]; while (0)
#endif

/* facts: table [rows, WT_SUMS], rows. y_k = the sum over the columns of table[x, k], for WT_SUMS outputs: to add rows of
 * the table takes a fraction of the time of one output after the other. */
WT_PROCESSORS void wt_look_up_row_sum(const wt_call *call) {
    enum { AT_ONCE = 64 };
    const table_row *table = wt_tensor(call, 0);
    double last = (double)(call->facts[1].integer - 1);
    for (size_t first = 0; first < call->rows; first += AT_ONCE) {
        size_t count = call->rows - first < AT_ONCE ? call->rows - first : AT_ONCE;
        table_row sums[AT_ONCE];
        int32_t places[AT_ONCE];
        memset(sums, 0, count * sizeof(*sums));
        for (size_t column = 0; column < call->step->inputs; column++) {
            const double *x = wt_input(call, column) + first;
            for (size_t row = 0; row < count; row++) {
                double place = x[row] > 0.0 ? x[row] : 0.0;
                places[row] = (int32_t)(place < last ? place : last);
            }
            for (size_t row = 0; row < count; row++) TABLE_ROW_ADD(sums[row], table[places[row]]);
        }
        for (size_t k = 0; k < WT_SUMS; k++)
            for (size_t row = 0; row < count; row++) wt_output(call, k)[first + row] = ((const double *)(sums + row))[k];
    }
}

enum { WT_BELOW, WT_UP_TO, WT_INSERT_LEFT, WT_INSERT_RIGHT };

/* Up to so many edges, comparing rows side by side with each takes less time than a search per row. */
enum { MOST_COMPARED_EDGES = 64 };

static inline int is_passed(double x, double edge, int64_t which) {
    switch (which) {
    case WT_BELOW: return x > edge;
    case WT_UP_TO: return x >= edge;
    case WT_INSERT_LEFT: return !(edge >= x);
    default: return !(edge > x);
    }
}

static inline double passes(double x, double edge, int64_t which) { return is_passed(x, edge, which) ? 1.0 : 0.0; }

WT_INLINE void bisect_columns(const wt_call *call, int64_t which) {
    const double *edges = wt_tensor(call, 0);
    const int64_t *counts = wt_tensor(call, 1);
    size_t most = (size_t)call->facts[2].integer, rows = call->rows;
    for (size_t column = 0; column < call->step->inputs; column++) {
        const double *restrict x = wt_input(call, column), *restrict edge = edges + column * most;
        double *restrict y = wt_output(call, column);
        size_t count = (size_t)counts[column];
        if (count <= MOST_COMPARED_EDGES && rows > 1) {
            for (size_t row = 0; row < rows; row++) y[row] = 0.0;
            size_t at = 0;
            for (; at + 4 <= count; at += 4) /* four, so that a sum is read and written a quarter as often */
                for (size_t row = 0; row < rows; row++)
                    y[row] += (passes(x[row], edge[at], which) + passes(x[row], edge[at + 1], which)) + (passes(x[row], edge[at + 2], which) + passes(x[row], edge[at + 3], which));
            for (; at < count; at++)
                for (size_t row = 0; row < rows; row++) y[row] += passes(x[row], edge[at], which);
            continue;
        }
        for (size_t row = 0; row < rows; row++) {
            size_t passed = 0;
            for (size_t left = count; left > 0;) {
                size_t half = (left + 1) / 2;
                int step = is_passed(x[row], edge[passed + half - 1], which);
                passed += step ? half : 0;
                left = step ? left - half : half - 1;
            }
            y[row] = (double)passed;
        }
    }
}

/* facts: edges [inputs, most], counts int64 [inputs], most, which. The number of edges, which ascend, that x passes:
 * those below x; those up to x; and the same where NaN passes all. */
WT_PROCESSORS void wt_bisect(const wt_call *call) {
    switch (call->facts[3].integer) { /* so that each loop compares in one way */
    case WT_BELOW: bisect_columns(call, WT_BELOW); break;
    case WT_UP_TO: bisect_columns(call, WT_UP_TO); break;
    case WT_INSERT_LEFT: bisect_columns(call, WT_INSERT_LEFT); break;
    default: bisect_columns(call, WT_INSERT_RIGHT);
    }
}
