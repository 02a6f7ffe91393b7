/* Soft trees: two layers of sigmoids per tree, in float32, for groups of rows side by side. */
#include <math.h>
#include <string.h>

#include "runtime.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(WT_PORTABLE)
#define WT_WIDE_PROCESSOR __attribute__((target("avx512f,avx512dq,avx2,fma")))
#endif

enum { WT_SOFT_ROWS = 64, WT_SOFT_UNITS = 4 };

/* Products and sums may round once here: what is compared with exact thresholds is not computed in this file. */
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")

typedef float wt_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef float wt_wide_lanes __attribute__((vector_size(64), aligned(4), may_alias));

/* 1 / (1 + 2^y), within 1e-7. */
#define WT_SOFT_STEP(y)                                                                                     \
    for (size_t at = 0; at < lanes; at++) {                                                                 \
        float bounded = (y)[at] < -126.0f ? -126.0f : (y)[at] > 126.0f ? 126.0f : (y)[at];                  \
        float whole = bounded + 12582912.0f; /* rounds to a whole number */                                 \
        float rounded = whole - 12582912.0f, r = bounded - rounded;                                         \
        float power = 0.00015353362f;                                                                       \
        power = power * r + 0.0013398874f;                                                                  \
        power = power * r + 0.009618437f;                                                                   \
        power = power * r + 0.055503324f;                                                                   \
        power = power * r + 0.24022648f;                                                                    \
        power = power * r + 0.6931472f;                                                                     \
        power = power * r + 1.0f;                                                                           \
        union { int32_t bits; float number; } scale = {.bits = ((int32_t)rounded + 127) << 23};             \
        (y)[at] = 1.0f / (1.0f + power * scale.number);                                                     \
    }

/* out[u] = bias[u] + sum over v of weight[v, u] in[v], for units u in fours. The inputs v of the units from 4 k on that
 * have a weight are source[start[k]] to source[start[k + 1]], with as many rows of weight, [.., 4]. */
#define WT_SOFT_LAYER(name, lanes)                                                                          \
    static inline __attribute__((always_inline)) void name(                                                 \
        const float *in, const uint32_t *start, const uint32_t *source, const float *weight, const float *bias, size_t units, float *out, size_t rows) { \
        size_t width = sizeof(lanes) / sizeof(float);                                                       \
        for (size_t unit = 0; unit < units; unit += WT_SOFT_UNITS)                                          \
            for (size_t row = 0; row < rows; row += 2 * width) {                                            \
                lanes sum[WT_SOFT_UNITS][2];                                                                \
                for (size_t k = 0; k < WT_SOFT_UNITS; k++) sum[k][0] = sum[k][1] = bias[unit + k] + (lanes){0}; \
                for (uint32_t at = start[unit / WT_SOFT_UNITS]; at < start[unit / WT_SOFT_UNITS + 1]; at++) { \
                    const float *w = weight + (size_t)at * WT_SOFT_UNITS;                                   \
                    const float *x = in + (size_t)source[at] * WT_SOFT_ROWS + row;                          \
                    lanes first = *(const lanes *)x, second = *(const lanes *)(x + width);                  \
                    for (size_t k = 0; k < WT_SOFT_UNITS; k++) {                                            \
                        sum[k][0] += w[k] * first;                                                          \
                        sum[k][1] += w[k] * second;                                                         \
                    }                                                                                       \
                }                                                                                           \
                for (size_t k = 0; k < WT_SOFT_UNITS; k++) {                                                \
                    *(lanes *)(out + (unit + k) * WT_SOFT_ROWS + row) = sum[k][0];                          \
                    *(lanes *)(out + (unit + k) * WT_SOFT_ROWS + row + width) = sum[k][1];                  \
                }                                                                                           \
            }                                                                                               \
    }
WT_SOFT_LAYER(wt_soft_layer_of_8, wt_lanes)
WT_SOFT_LAYER(wt_soft_layer_of_16, wt_wide_lanes)

static inline __attribute__((always_inline)) void wt_soft_layer(
    int wide, const float *in, const uint32_t *start, const uint32_t *source, const float *weight, const float *bias, size_t units, float *out, size_t rows) {
    if (wide)
        wt_soft_layer_of_16(in, start, source, weight, bias, units, out, rows);
    else
        wt_soft_layer_of_8(in, start, source, weight, bias, units, out, rows);
}

/* facts: trees, nodes, leaves (padded to fours); center, scale, low, high float32 [inputs]; weight float32 [.., 4];
 * node bias [trees, nodes]; path [.., 4]; leaf bias [trees, leaves]; value
 * [trees, outputs, leaves]; base float64 [outputs]; count of special nodes of each tree int64 [trees + 1], summed;
 * special int64 [count, 3]: node, column, kind (1: NaN is missing, 2: zero too); far float32 [count]; start uint32
 * [trees nodes / 4 + 1] and source uint32 of weight; the same of path. Weights are in
 * units of 2^-y, signs turned. scratch: float32 [inputs + nodes + leaves, 64]. */
static inline __attribute__((always_inline)) void wt_soft_scores(const wt_call *call, int wide) {
    size_t step = wide ? 32 : 16; /* rows at once */
    size_t trees = (size_t)call->facts[0].integer, nodes = (size_t)call->facts[1].integer;
    size_t leaves = (size_t)call->facts[2].integer, inputs = call->step->inputs, outputs = call->step->outputs;
    const float *center = wt_tensor(call, 3), *scale = wt_tensor(call, 4), *low = wt_tensor(call, 5);
    const float *high = wt_tensor(call, 6), *weight = wt_tensor(call, 7), *node_bias = wt_tensor(call, 8);
    const float *path = wt_tensor(call, 9), *leaf_bias = wt_tensor(call, 10), *value = wt_tensor(call, 11);
    const double *base = wt_tensor(call, 12);
    const int64_t *start = wt_tensor(call, 13), *special = wt_tensor(call, 14);
    const float *far = wt_tensor(call, 15);
    const uint32_t *weight_start = wt_tensor(call, 16), *weight_source = wt_tensor(call, 17);
    const uint32_t *path_start = wt_tensor(call, 18), *path_source = wt_tensor(call, 19);
    float *z = call->scratch, *node = z + inputs * WT_SOFT_ROWS, *leaf = node + nodes * WT_SOFT_ROWS;
    for (size_t first = 0; first < call->rows; first += WT_SOFT_ROWS) {
        size_t count = call->rows - first < WT_SOFT_ROWS ? call->rows - first : WT_SOFT_ROWS;
        size_t rows = (count + step - 1) / step * step;
        memset(z, 0, inputs * WT_SOFT_ROWS * sizeof(float));
        for (size_t column = 0; column < inputs; column++) {
            const double *x = wt_input(call, column) + first;
            for (size_t row = 0; row < count; row++) {
                float number = (float)x[row];
                number = ((number != number ? 0.0f : number) - center[column]) / scale[column];
                number = number < low[column] ? low[column] : number;
                z[column * WT_SOFT_ROWS + row] = number > high[column] ? high[column] : number;
            }
        }
        for (size_t output = 0; output < outputs; output++)
            for (size_t row = 0; row < count; row++) wt_output(call, output)[first + row] = base[output];
        for (size_t tree = 0; tree < trees; tree++) {
            wt_soft_layer(wide, z, weight_start + tree * nodes / WT_SOFT_UNITS, weight_source, weight, node_bias + tree * nodes, nodes, node, rows);
            for (int64_t at = start[tree]; at < start[tree + 1]; at++) {
                const double *x = wt_input(call, (size_t)special[3 * at + 1]) + first;
                float *y = node + (size_t)special[3 * at] * WT_SOFT_ROWS;
                int zero = special[3 * at + 2] == 2;
                for (size_t row = 0; row < count; row++)
                    if (x[row] != x[row] || (zero && fabs(x[row]) <= 1e-35)) y[row] = far[at];
            }
            for (size_t unit = 0; unit < nodes; unit++) {
                size_t lanes = rows;
                WT_SOFT_STEP(node + unit * WT_SOFT_ROWS)
            }
            wt_soft_layer(wide, node, path_start + tree * leaves / WT_SOFT_UNITS, path_source, path, leaf_bias + tree * leaves, leaves, leaf, rows);
            for (size_t unit = 0; unit < leaves; unit++) {
                size_t lanes = rows;
                WT_SOFT_STEP(leaf + unit * WT_SOFT_ROWS)
            }
            for (size_t output = 0; output < outputs; output++) {
                const float *factor = value + (tree * outputs + output) * leaves;
                float sum[WT_SOFT_ROWS] = {0};
                for (size_t unit = 0; unit < leaves; unit++)
                    for (size_t row = 0; row < rows; row++) sum[row] += factor[unit] * leaf[unit * WT_SOFT_ROWS + row];
                double *y = wt_output(call, output) + first;
                for (size_t row = 0; row < count; row++) y[row] += (double)sum[row];
            }
        }
    }
}

#ifdef WT_WIDE_PROCESSOR
WT_WIDE_PROCESSOR static void wt_wide_soft_scores(const wt_call *call) {
    wt_soft_scores(call, 1);
}
#endif

WT_PROCESSORS static void wt_narrow_soft_scores(const wt_call *call) {
    wt_soft_scores(call, 0);
}

void wt_soft_trees(const wt_call *call) {
#ifdef WT_WIDE_PROCESSOR
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && call->rows > 16) {
        wt_wide_soft_scores(call);
        return;
    }
#endif
    wt_narrow_soft_scores(call);
}

#pragma GCC pop_options
