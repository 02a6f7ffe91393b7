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

/* facts: weight [outputs, inputs], bias [outputs]. y = x W^T + b */
WT_PROCESSORS void wt_linear(const wt_call *call) {
    const double *weight = wt_tensor(call, 0), *bias = wt_tensor(call, 1);
    size_t inputs = call->step->inputs;
    for (size_t sum = 0; sum < call->step->outputs; sum++) {
        double *y = wt_output(call, sum);
        for (size_t row = 0; row < call->rows; row++) y[row] = bias[sum];
        for (size_t column = 0; column < inputs; column++) {
            const double *x = wt_input(call, column);
            double factor = weight[sum * inputs + column];
            for (size_t row = 0; row < call->rows; row++) y[row] += factor * x[row];
        }
    }
}
