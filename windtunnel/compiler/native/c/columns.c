/* Operations that map columns one by one. */
#include "runtime.h"

/* facts: scale, shift, center, unit [width]. y = (x - center) / unit * scale + shift */
WT_PROCESSORS void wt_affine(const wt_call *call) {
    const double *scale = wt_tensor(call, 0), *shift = wt_tensor(call, 1);
    const double *center = wt_tensor(call, 2), *unit = wt_tensor(call, 3);
    for (size_t column = 0; column < call->step->inputs; column++) {
        const double *x = wt_input(call, column);
        double *y = wt_output(call, column);
        for (size_t row = 0; row < call->rows; row++)
            y[row] = (x[row] - center[column]) / unit[column] * scale[column] + shift[column];
    }
}

/* facts: weight [outputs, inputs], bias [outputs]. y = x W^T + b. Four columns at a time, so that a sum is read and written
 * once for them. */
WT_PROCESSORS void wt_linear(const wt_call *call) {
    const double *weight = wt_tensor(call, 0), *bias = wt_tensor(call, 1);
    size_t inputs = call->step->inputs;
    for (size_t sum = 0; sum < call->step->outputs; sum++, weight += inputs) {
        double *restrict y = wt_output(call, sum);
        size_t column = 0;
        for (size_t row = 0; row < call->rows; row++) y[row] = bias[sum];
        for (; column + 4 <= inputs; column += 4) {
            const double *first = wt_input(call, column), *second = wt_input(call, column + 1);
            const double *third = wt_input(call, column + 2), *fourth = wt_input(call, column + 3);
            const double *factors = weight + column;
            for (size_t row = 0; row < call->rows; row++)
                y[row] = y[row] + factors[0] * first[row] + factors[1] * second[row] + factors[2] * third[row] + factors[3] * fourth[row];
        }
        for (; column < inputs; column++) {
            const double *x = wt_input(call, column);
            for (size_t row = 0; row < call->rows; row++) y[row] += weight[column] * x[row];
        }
    }
}
