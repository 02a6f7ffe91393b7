/*
 * Soft trees: two layers of sigmoids per tree, in float32, for 64 rows side by side.
 *
 * A layer is a product of matrices, from which weights of zero are left out (a net has many before it is trained); then
 * the sigmoid of each sum. The products of a trained net at L4 take about 70 % of the time. Processors may round differently here: nothing is compared with an exact threshold.
 */
#include <math.h>
#include <string.h>

#include "runtime.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(WT_PORTABLE) && !defined(WT_WITHOUT_AVX512)
#include <immintrin.h>
#define WT_WIDE_PROCESSOR __attribute__((target("avx512f,avx512dq,avx2,fma")))
#define WT_SOFT_STEPS(units, count) (wide ? wt_wide_soft_steps : wt_soft_steps)(units, count, rows);
#else
#define WT_SOFT_STEPS(units, count) wt_soft_steps(units, count, rows);
#endif

enum { WT_SOFT_ROWS = 64, WT_SOFT_UNITS = 4 };

/* Products and sums may round once here: what is compared with exact thresholds is not computed in this file. */
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")

typedef float wt_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t wt_mask_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef float wt_wide_lanes __attribute__((vector_size(64), aligned(4), may_alias));

/* The coefficients of 2^r for r between -1/2 and 1/2, from r^6 down to r; within 1e-7. */
#define WT_SOFT_POWERS(term) \
    term(0.00015353362f) term(0.0013398874f) term(0.009618437f) term(0.055503324f) term(0.24022648f) term(0.6931472f) term(1.0f)

/* A number where a mask has all bits, else that of other lanes. */
#define WT_SOFT_CHOICE(mask, number, other) \
    (wt_lanes)(((mask) & (wt_mask_lanes)((number) + (wt_lanes){0})) | (~(mask) & (wt_mask_lanes)(other)))

/* 1 / (1 + 2^y) of each unit and row; in words of the compiler, which otherwise takes one row after the other. */
static inline __attribute__((always_inline)) void wt_soft_steps(float *units, size_t count, size_t rows) {
    for (size_t unit = 0; unit < count; unit++)
        for (size_t row = 0; row < rows; row += sizeof(wt_lanes) / sizeof(float)) {
            wt_lanes *place = (wt_lanes *)(units + unit * WT_SOFT_ROWS + row), y = *place;
            y = WT_SOFT_CHOICE(y < -126.0f, -126.0f, y);
            y = WT_SOFT_CHOICE(y > 126.0f, 126.0f, y);
            wt_lanes rounded = y + 12582912.0f - 12582912.0f, r = y - rounded, power = {0};
#define WT_SOFT_TERM(factor) power = power * r + factor;
            WT_SOFT_POWERS(WT_SOFT_TERM)
#undef WT_SOFT_TERM
            wt_lanes scale = (wt_lanes)((__builtin_convertvector(rounded, wt_mask_lanes) + 127) << 23);
            *place = 1.0f / (1.0f + power * scale);
        }
}

#ifdef WT_WIDE_PROCESSOR
/* The same by instructions of AVX-512 for powers of two and for quotients, whose error a step of Newton squares. */
WT_WIDE_PROCESSOR static void wt_wide_soft_steps(float *units, size_t count, size_t rows) {
    const __m512 bound = _mm512_set1_ps(126.0f), one = _mm512_set1_ps(1.0f), two = _mm512_set1_ps(2.0f);
    for (size_t unit = 0; unit < count; unit++)
        for (size_t row = 0; row < rows; row += 16) {
            float *place = units + unit * WT_SOFT_ROWS + row;
            __m512 y = _mm512_max_ps(_mm512_min_ps(_mm512_loadu_ps(place), bound), _mm512_sub_ps(_mm512_setzero_ps(), bound));
            __m512 rounded = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(y, rounded);
            __m512 power = _mm512_setzero_ps();
#define WT_SOFT_TERM(factor) power = _mm512_fmadd_ps(power, r, _mm512_set1_ps(factor));
            WT_SOFT_POWERS(WT_SOFT_TERM)
#undef WT_SOFT_TERM
            __m512 divisor = _mm512_add_ps(one, _mm512_scalef_ps(power, rounded)), near = _mm512_rcp14_ps(divisor);
            _mm512_storeu_ps(place, _mm512_mul_ps(near, _mm512_fnmadd_ps(divisor, near, two)));
        }
}
#endif

/* out[u] = bias[u] + sum over v of weight[v, u] in[v], for units u in fours, and rows in as many vectors. The inputs v of
 * the units from 4 k on that have a weight are source[start[k]] to source[start[k + 1]], with as many rows of weight,
 * [.., 4]. Sums stay in registers: eight of them at least, since a sum waits four cycles for the one before it. */
#define WT_SOFT_LAYER(name, lanes, vectors)                                                                 \
    static inline __attribute__((always_inline)) void name(                                                 \
        const float *in, const uint32_t *start, const uint32_t *source, const float *weight, const float *bias, size_t units, float *out, size_t rows) { \
        const size_t width = sizeof(lanes) / sizeof(float);                                                 \
        for (size_t unit = 0; unit < units; unit += WT_SOFT_UNITS)                                          \
            for (size_t row = 0; row < rows; row += vectors * width) {                                      \
                lanes sum[WT_SOFT_UNITS][vectors], x[vectors];                                              \
                for (size_t k = 0; k < WT_SOFT_UNITS; k++)                                                  \
                    for (size_t part = 0; part < vectors; part++) sum[k][part] = bias[unit + k] + (lanes){0}; \
                for (uint32_t at = start[unit / WT_SOFT_UNITS]; at < start[unit / WT_SOFT_UNITS + 1]; at++) { \
                    const float *w = weight + (size_t)at * WT_SOFT_UNITS;                                   \
                    const float *from = in + (size_t)source[at] * WT_SOFT_ROWS + row;                       \
                    for (size_t part = 0; part < vectors; part++) x[part] = *(const lanes *)(from + part * width); \
                    for (size_t k = 0; k < WT_SOFT_UNITS; k++)                                              \
                        for (size_t part = 0; part < vectors; part++) sum[k][part] += w[k] * x[part];       \
                }                                                                                           \
                for (size_t k = 0; k < WT_SOFT_UNITS; k++)                                                  \
                    for (size_t part = 0; part < vectors; part++)                                           \
                        *(lanes *)(out + (unit + k) * WT_SOFT_ROWS + row + part * width) = sum[k][part];    \
            }                                                                                               \
    }
WT_SOFT_LAYER(wt_soft_layer_of_16, wt_lanes, 2)
WT_SOFT_LAYER(wt_soft_layer_of_32, wt_wide_lanes, 2)
WT_SOFT_LAYER(wt_soft_layer_of_64, wt_wide_lanes, 4)

static inline __attribute__((always_inline)) void wt_soft_layer(
    int wide, const float *in, const uint32_t *start, const uint32_t *source, const float *weight, const float *bias, size_t units, float *out, size_t rows) {
    if (!wide)
        wt_soft_layer_of_16(in, start, source, weight, bias, units, out, rows);
    else if (rows < WT_SOFT_ROWS)
        wt_soft_layer_of_32(in, start, source, weight, bias, units, out, rows);
    else
        wt_soft_layer_of_64(in, start, source, weight, bias, units, out, rows);
}

/* The facts of the operation. Nodes and leaves are padded to fours; weights are in units of 2^-y, signs turned. */
typedef struct {
    size_t trees, nodes, leaves, inputs, outputs;
    const float *center, *scale, *low, *high; /* [inputs] */
    const float *weight, *path;               /* [.., 4] */
    const float *node_bias, *leaf_bias;       /* [trees, nodes], [trees, leaves] */
    const float *value;                       /* [trees, outputs, leaves] */
    const double *base;                       /* [outputs] */
    const int64_t *special_start;             /* [trees + 1]: where the special nodes of a tree start */
    const int64_t *special;                   /* [.., 3]: node, column, kind (1: NaN is missing, 2: zero too) */
    const float *far;                         /* of each special node, where its column is missing */
    const uint32_t *weight_start, *weight_source, *path_start, *path_source; /* see WT_SOFT_LAYER */
} wt_soft_facts;

static wt_soft_facts wt_soft_facts_of(const wt_call *call) {
    wt_soft_facts facts = {
        .trees = (size_t)call->facts[0].integer,
        .nodes = (size_t)call->facts[1].integer,
        .leaves = (size_t)call->facts[2].integer,
        .inputs = call->step->inputs,
        .outputs = call->step->outputs,
        .center = wt_tensor(call, 3),
        .scale = wt_tensor(call, 4),
        .low = wt_tensor(call, 5),
        .high = wt_tensor(call, 6),
        .weight = wt_tensor(call, 7),
        .node_bias = wt_tensor(call, 8),
        .path = wt_tensor(call, 9),
        .leaf_bias = wt_tensor(call, 10),
        .value = wt_tensor(call, 11),
        .base = wt_tensor(call, 12),
        .special_start = wt_tensor(call, 13),
        .special = wt_tensor(call, 14),
        .far = wt_tensor(call, 15),
        .weight_start = wt_tensor(call, 16),
        .weight_source = wt_tensor(call, 17),
        .path_start = wt_tensor(call, 18),
        .path_source = wt_tensor(call, 19),
    };
    return facts;
}

/* The scaled inputs of some rows, float32 [inputs, WT_SOFT_ROWS]. */
static inline __attribute__((always_inline)) void wt_soft_scaled(const wt_call *call, const wt_soft_facts *facts, size_t first, size_t count, float *z) {
    memset(z, 0, facts->inputs * WT_SOFT_ROWS * sizeof(float));
    for (size_t column = 0; column < facts->inputs; column++) {
        const double *x = wt_input(call, column) + first;
        for (size_t row = 0; row < count; row++) {
            float number = (float)x[row];
            number = ((number != number ? 0.0f : number) - facts->center[column]) / facts->scale[column];
            number = number < facts->low[column] ? facts->low[column] : number;
            z[column * WT_SOFT_ROWS + row] = number > facts->high[column] ? facts->high[column] : number;
        }
    }
}

/* The default directions of the nodes of a tree whose column is missing. */
static inline __attribute__((always_inline)) void wt_soft_missing(const wt_call *call, const wt_soft_facts *facts, size_t tree, size_t first, size_t count, float *node) {
    for (int64_t at = facts->special_start[tree]; at < facts->special_start[tree + 1]; at++) {
        const int64_t *special = facts->special + 3 * at;
        const double *x = wt_input(call, (size_t)special[1]) + first;
        float *y = node + (size_t)special[0] * WT_SOFT_ROWS;
        for (size_t row = 0; row < count; row++)
            if (x[row] != x[row] || (special[2] == 2 && fabs(x[row]) <= WT_NEAR_ZERO)) y[row] = facts->far[at];
    }
}

/* Add the leaves of a tree to the outputs. */
static inline __attribute__((always_inline)) void wt_soft_add(const wt_call *call, const wt_soft_facts *facts, size_t tree, const float *leaf, size_t first, size_t count, size_t rows) {
    for (size_t output = 0; output < facts->outputs; output++) {
        const float *value = facts->value + (tree * facts->outputs + output) * facts->leaves;
        float sum[WT_SOFT_ROWS] = {0};
        for (size_t unit = 0; unit < facts->leaves; unit++)
            for (size_t row = 0; row < rows; row++) sum[row] += value[unit] * leaf[unit * WT_SOFT_ROWS + row];
        double *y = wt_output(call, output) + first;
        for (size_t row = 0; row < count; row++) y[row] += (double)sum[row];
    }
}

/* Trees one after the other, so that the weights of a tree are read once for all rows of the call. scratch: float32, the
 * nodes and the leaves of a tree for WT_SOFT_ROWS rows, and the scaled inputs of all rows. */
static inline __attribute__((always_inline)) void wt_soft_scores(const wt_call *call, int wide) {
    size_t step = wide ? 32 : 16; /* rows at once */
    wt_soft_facts facts = wt_soft_facts_of(call);
    float *node = call->scratch, *leaf = node + facts.nodes * WT_SOFT_ROWS, *scaled = leaf + facts.leaves * WT_SOFT_ROWS;
    for (size_t first = 0; first < call->rows; first += WT_SOFT_ROWS)
        wt_soft_scaled(call, &facts, first, call->rows - first < WT_SOFT_ROWS ? call->rows - first : WT_SOFT_ROWS, scaled + first * facts.inputs);
    for (size_t output = 0; output < facts.outputs; output++)
        for (size_t row = 0; row < call->rows; row++) wt_output(call, output)[row] = facts.base[output];
    for (size_t tree = 0; tree < facts.trees; tree++) {
        const uint32_t *weight_start = facts.weight_start + tree * facts.nodes / WT_SOFT_UNITS;
        const uint32_t *path_start = facts.path_start + tree * facts.leaves / WT_SOFT_UNITS;
        for (size_t first = 0; first < call->rows; first += WT_SOFT_ROWS) {
            size_t count = call->rows - first < WT_SOFT_ROWS ? call->rows - first : WT_SOFT_ROWS;
            size_t rows = (count + step - 1) / step * step;
            wt_soft_layer(wide, scaled + first * facts.inputs, weight_start, facts.weight_source, facts.weight, facts.node_bias + tree * facts.nodes, facts.nodes, node, rows);
            wt_soft_missing(call, &facts, tree, first, count, node);
            WT_SOFT_STEPS(node, facts.nodes)
            wt_soft_layer(wide, node, path_start, facts.path_source, facts.path, facts.leaf_bias + tree * facts.leaves, facts.leaves, leaf, rows);
            WT_SOFT_STEPS(leaf, facts.leaves)
            wt_soft_add(call, &facts, tree, leaf, first, count, rows);
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
