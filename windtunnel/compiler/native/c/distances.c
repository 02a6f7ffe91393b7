/* Distances to fixed rows. */
#include <math.h>

#include "runtime.h"

/* facts: points [outputs, inputs], power, which may be infinite. y_i = (sum over c of |x_c - point_ic|^power)^(1 / power) */
WT_PROCESSORS void wt_distances(const wt_call *call) {
    const double *points = wt_tensor(call, 0);
    double power = call->facts[1].number;
    size_t rows = call->rows, inputs = call->step->inputs;
    for (size_t point = 0; point < call->step->outputs; point++) {
        double *restrict y = wt_output(call, point);
        for (size_t row = 0; row < rows; row++) y[row] = 0;
        for (size_t column = 0; column < inputs; column++) {
            const double *restrict x = wt_input(call, column);
            double center = points[point * inputs + column];
            if (power == 2)
                for (size_t row = 0; row < rows; row++) y[row] += (x[row] - center) * (x[row] - center);
            else if (power == 1)
                for (size_t row = 0; row < rows; row++) y[row] += fabs(x[row] - center);
            else if (power == (double)INFINITY)
                for (size_t row = 0; row < rows; row++) {
                    double size = fabs(x[row] - center);
                    y[row] = size > y[row] || size != size ? size : y[row];
                }
            else
                for (size_t row = 0; row < rows; row++) y[row] += pow(fabs(x[row] - center), power);
        }
        if (power == 2)
            for (size_t row = 0; row < rows; row++) y[row] = sqrt(y[row]);
        else if (power != 1 && power != (double)INFINITY)
            for (size_t row = 0; row < rows; row++) y[row] = pow(y[row], 1 / power);
    }
}
