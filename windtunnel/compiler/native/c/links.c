/* Operations behind the scores: links, and the position of the predicted label. */
#include <math.h>

#include "runtime.h"

typedef double link_function(double x, double scale);

/* y = link(x, scale) in each column. */
WT_INLINE void link_columns(const wt_call *call, link_function *link, double scale) {
    for (size_t column = 0; column < call->step->inputs; column++) {
        const double *x = wt_input(call, column);
        double *y = wt_output(call, column);
        for (size_t row = 0; row < call->rows; row++) y[row] = link(x[row], scale);
    }
}

static double link_logistic(double x, double scale) { return 1 / (1 + exp(-(x * scale))); }

static double link_exponential(double x, double scale) { return (void)scale, exp(x); }

static double link_log1p_exp(double x, double scale) { return (void)scale, x > 20 ? x : log1p(exp(x)); }

static double link_signed_square(double x, double scale) { return (void)scale, fabs(x) * x; }

static double link_clipped_half(double x, double scale) { return (void)scale, ((x < -1 ? -1 : x > 1 ? 1 : x) + 1) / 2; }

static double link_scaled(double x, double scale) { return scale * x; }

/* fact: scale. y = 1 / (1 + exp(-scale x)) */
void wt_scaled_logistic(const wt_call *call) { link_columns(call, link_logistic, call->facts[0].number); }

/* y = exp(x) */
void wt_exponential(const wt_call *call) { link_columns(call, link_exponential, 1); }

/* y = log(1 + exp(x)), x itself beyond 20 */
void wt_log1p_exp(const wt_call *call) { link_columns(call, link_log1p_exp, 1); }

/* y = sign(x) x^2 */
void wt_signed_square(const wt_call *call) { link_columns(call, link_signed_square, 1); }

/* y = (clip(x, -1, 1) + 1) / 2 */
void wt_clipped_half(const wt_call *call) { link_columns(call, link_clipped_half, 1); }

/* fact: scale. y = scale x */
void wt_scaled(const wt_call *call) { link_columns(call, link_scaled, call->facts[0].number); }

/* One probability p -> [1 - p, p]. */
void wt_two_classes(const wt_call *call) {
    const double *x = wt_input(call, 0);
    double *other = wt_output(call, 0), *y = wt_output(call, 1);
    for (size_t row = 0; row < call->rows; row++) {
        other[row] = 1 - x[row];
        y[row] = x[row];
    }
}

/* y_k = exp(x_k - max) / sum_j exp(x_j - max), column by column */
WT_PROCESSORS void wt_softmax(const wt_call *call) {
    enum { AT_ONCE = 64 };
    size_t columns = call->step->inputs;
    for (size_t first = 0; first < call->rows; first += AT_ONCE) {
        size_t count = call->rows - first < AT_ONCE ? call->rows - first : AT_ONCE;
        double most[AT_ONCE], sum[AT_ONCE];
        for (size_t row = 0; row < count; row++) most[row] = -INFINITY;
        for (size_t row = 0; row < count; row++) sum[row] = 0;
        for (size_t column = 0; column < columns; column++) {
            const double *x = wt_input(call, column) + first;
            for (size_t row = 0; row < count; row++) most[row] = x[row] > most[row] ? x[row] : most[row];
        }
        for (size_t column = 0; column < columns; column++) {
            const double *x = wt_input(call, column) + first;
            double *restrict y = wt_output(call, column) + first;
            for (size_t row = 0; row < count; row++) y[row] = exp(x[row] - most[row]);
            for (size_t row = 0; row < count; row++) sum[row] += y[row];
        }
        for (size_t column = 0; column < columns; column++) {
            double *restrict y = wt_output(call, column) + first;
            for (size_t row = 0; row < count; row++) y[row] /= sum[row];
        }
    }
}

/* y_k = max(x_k, 0) / sum_j max(x_j, 0), and 1 / K where all are 0. */
void wt_shares(const wt_call *call) {
    size_t columns = call->step->inputs;
    for (size_t row = 0; row < call->rows; row++) {
        double sum = 0;
        for (size_t column = 0; column < columns; column++) {
            double x = wt_input(call, column)[row];
            sum += x < 0 ? 0 : x;
        }
        for (size_t column = 0; column < columns; column++) {
            double x = wt_input(call, column)[row];
            wt_output(call, column)[row] = sum > 0 ? (x < 0 ? 0 : x) / sum : 1 / (double)columns;
        }
    }
}

/* The position of the predicted label: of one score whether it is above 0, else that of the first of the greatest. */
WT_PROCESSORS void wt_position(const wt_call *call) {
    enum { AT_ONCE = 64 };
    size_t columns = call->step->inputs;
    double *position = wt_output(call, 0);
    if (columns < 2) {
        for (size_t row = 0; row < call->rows; row++) position[row] = columns == 1 && wt_input(call, 0)[row] > 0;
        return;
    }
    for (size_t first = 0; first < call->rows; first += AT_ONCE) {
        size_t count = call->rows - first < AT_ONCE ? call->rows - first : AT_ONCE;
        double most[AT_ONCE], best[AT_ONCE];
        for (size_t row = 0; row < count; row++) most[row] = wt_input(call, 0)[first + row];
        for (size_t row = 0; row < count; row++) best[row] = 0;
        for (size_t column = 1; column < columns; column++) {
            const double *x = wt_input(call, column) + first;
            for (size_t row = 0; row < count; row++) {
                int more = (x[row] > most[row]) | ((x[row] != x[row]) & (most[row] == most[row])); /* NaN is the greatest, as in torch */
                best[row] = more ? (double)column : best[row];
                most[row] = more ? x[row] : most[row];
            }
        }
        for (size_t row = 0; row < count; row++) position[first + row] = best[row];
    }
}
