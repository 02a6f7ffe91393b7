/* Operations that look up rows of tables. */
#include "runtime.h"

/* facts: rows [categories, outputs]. One input, the id. y = rows[id] */
void wt_category_table(const wt_call *call) {
    const double *table = wt_tensor(call, 0), *id = wt_input(call, 0);
    size_t outputs = call->step->outputs;
    for (size_t column = 0; column < outputs; column++) {
        double *y = wt_output(call, column);
        for (size_t row = 0; row < call->rows; row++) y[row] = table[(size_t)id[row] * outputs + column];
    }
}
