/* Operations on groups of columns: sums, extremes, and the place of the greatest. */
#include "runtime.h"

enum { WT_SUM, WT_PRODUCT, WT_GREATEST, WT_LEAST };

/* facts: which. Group i has the inputs i m to (i + 1) m - 1, with m = inputs / outputs; at least one. */
WT_PROCESSORS void wt_reduce(const wt_call *call) {
    size_t rows = call->rows, size = call->step->inputs / call->step->outputs;
    for (size_t group = 0; group < call->step->outputs; group++) {
        double *restrict y = wt_output(call, group);
        const double *restrict first = wt_input(call, group * size);
        for (size_t row = 0; row < rows; row++) y[row] = first[row];
        for (size_t member = 1; member < size; member++) {
            const double *restrict x = wt_input(call, group * size + member);
            switch (call->facts[0].integer) {
            case WT_SUM:
                for (size_t row = 0; row < rows; row++) y[row] += x[row];
                break;
            case WT_PRODUCT:
                for (size_t row = 0; row < rows; row++) y[row] *= x[row];
                break;
            case WT_GREATEST:
                for (size_t row = 0; row < rows; row++) y[row] = x[row] > y[row] || x[row] != x[row] ? x[row] : y[row];
                break;
            default:
                for (size_t row = 0; row < rows; row++) y[row] = x[row] < y[row] || x[row] != x[row] ? x[row] : y[row];
            }
        }
    }
}

/* facts: sign. One group. The greatest of sign x, the first of equal ones, and its place. NaN is greatest. */
WT_PROCESSORS void wt_greatest(const wt_call *call) {
    double sign = call->facts[0].number;
    double *restrict best = wt_output(call, 0), *restrict place = wt_output(call, 1);
    for (size_t member = 0; member < call->step->inputs; member++) {
        const double *restrict x = wt_input(call, member);
        for (size_t row = 0; row < call->rows; row++) {
            int better = member == 0 || (best[row] == best[row] && !(sign * x[row] <= sign * best[row]));
            best[row] = better ? x[row] : best[row];
            place[row] = better ? (double)member : place[row];
        }
    }
}

/* facts: sign. The k least of sign x in ascending order, and then their places; the first of equal ones comes first.
 * NaN is last. outputs = 2 k */
void wt_least(const wt_call *call) {
    double sign = call->facts[0].number;
    size_t most = call->step->outputs / 2;
    for (size_t row = 0; row < call->rows; row++) {
        for (size_t member = 0, count = 0; member < call->step->inputs; member++) {
            double x = wt_input(call, member)[row];
            size_t at = count;
            while (at > 0) { /* what is greater moves up */
                double before = wt_output(call, at - 1)[row];
                if (!(sign * x < sign * before || (before != before && x == x))) break;
                at--;
            }
            if (at == most) continue;
            if (count < most) count++;
            for (size_t to = count - 1; to > at; to--) {
                wt_output(call, to)[row] = wt_output(call, to - 1)[row];
                wt_output(call, most + to)[row] = wt_output(call, most + to - 1)[row];
            }
            wt_output(call, at)[row] = x;
            wt_output(call, most + at)[row] = (double)member;
        }
    }
}

/* The first column in is the place of the number among the others. y = x[place] */
void wt_pick(const wt_call *call) {
    const double *place = wt_input(call, 0);
    double *y = wt_output(call, 0);
    size_t members = call->step->inputs - 1;
    for (size_t row = 0; row < call->rows; row++) y[row] = wt_input(call, 1 + wt_index(place[row], members))[row];
}
