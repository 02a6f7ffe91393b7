/* Hard trees: every row walks down every tree. */
#include "runtime.h"

/* facts: feature int64, split float64, follow int64, value float64 [positions]; root int64 [outputs * trees]; trees of
 * a score; base [outputs]; divisor. A node goes right where the value of its feature is above its split. */
void wt_trees(const wt_call *call) {
    const int64_t *feature = wt_tensor(call, 0), *follow = wt_tensor(call, 2), *root = wt_tensor(call, 4);
    const double *split = wt_tensor(call, 1), *value = wt_tensor(call, 3), *base = wt_tensor(call, 6);
    size_t trees = (size_t)call->facts[5].integer;
    double divisor = call->facts[7].number;
    for (size_t score = 0; score < call->step->outputs; score++) {
        double *y = wt_output(call, score);
        for (size_t row = 0; row < call->rows; row++) {
            double sum = base[score];
            for (size_t tree = 0; tree < trees; tree++) {
                int64_t at = root[score * trees + tree];
                while (follow[at] != at) at = follow[at] + (wt_input(call, (size_t)feature[at])[row] > split[at]);
                sum += value[at];
            }
            y[row] = sum / divisor;
        }
    }
}
