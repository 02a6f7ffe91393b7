/* Operations on each number by itself. The function is named by a number, its place in these lists, which Python reads. */
#include <math.h>

#include "runtime.h"

static inline double logistic_of(double x) {
    return 1 / (1 + exp(-x));
}

static inline double wt_minimum(double a, double b) {
    return a != a ? a : (b != b || b < a) ? b : a;
}

static inline double wt_maximum(double a, double b) {
    return a != a ? a : (b != b || b > a) ? b : a;
}

/* The remainder with the sign of b. */
static inline double wt_remainder(double a, double b) {
    double rest = fmod(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

static inline double wt_polynomial(double x, const double *coefficients, int degree) {
    double sum = coefficients[0];
    for (int power = 1; power <= degree; power++) sum = sum * x + coefficients[power];
    return sum;
}

/* The normal quantile of p, by the rational approximations of Cephes (Moshier, 1989). */
static double wt_normal_quantile(double p) {
    static const double P0[] = {-59.9633501014107895267, 98.0010754185999661536, -56.6762857469070293439,
                                13.9312609387279679503, -1.23916583867381258016};
    static const double Q0[] = {1.0, 1.95448858338141759834, 4.67627912898881538453, 86.3602421390890590575,
                                -225.462687854119370527, 200.260212380060660359, -82.0372256168333339912,
                                15.9056225126211695515, -1.18331621121330003142};
    static const double P1[] = {4.05544892305962419923, 31.5251094599893866154, 57.1628192246421288162,
                                44.0805073893200834700, 14.6849561928858024014, 2.18663306850790267539,
                                -.140256079171354495875, -.0350424626827848203418, -.000857456785154685413611};
    static const double Q1[] = {1.0, 15.7799883256466749731, 45.3907635128879210584, 41.3172038254672030440,
                                15.0425385692907503408, 2.50464946208309415979, -.142182922854787788574,
                                -.0380806407691578277194, -.000933259480895457427372};
    static const double P2[] = {3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415,
                                1.33303460815807542389, .201485389549179081538, .0123716634817820021358,
                                .000301581553508235416007, .00000265806974686737550832, .00000000623974539184983293730};
    static const double Q2[] = {1.0, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271,
                                .216236993594496635890, .0134204006088543189037, .000328014464682127739104,
                                .00000289247864745380683936, .00000000679019408009981274425};
    if (p == 0) return -INFINITY;
    if (p == 1) return INFINITY;
    if (!(p > 0 && p < 1)) return NAN;
    int upper = p > 1 - 0.13533528323661269189;
    double y = upper ? 1 - p : p;
    if (y > 0.13533528323661269189) {
        y -= 0.5;
        double square = y * y;
        double x = y + y * (square * wt_polynomial(square, P0, 4) / wt_polynomial(square, Q0, 8));
        return x * 2.50662827463100050242;
    }
    double x = sqrt(-2 * log(y)), z = 1 / x;
    double tail = x < 8 ? z * wt_polynomial(z, P1, 8) / wt_polynomial(z, Q1, 8)
                        : z * wt_polynomial(z, P2, 8) / wt_polynomial(z, Q2, 8);
    x = x - log(x) / x - tail;
    return upper ? x : -x;
}

#define WT_UNARY_FUNCTIONS(F)                          \
    F(neg, -a)                                         \
    F(abs, fabs(a))                                    \
    F(isnan, a != a)                                   \
    F(isinf, fabs(a) == (double)INFINITY)              \
    F(single, (double)(float)a)                        \
    F(sigmoid, logistic_of(a))                         \
    F(exp, exp(a))                                     \
    F(exp2, exp2(a))                                   \
    F(expm1, expm1(a))                                 \
    F(log, log(a))                                     \
    F(log2, log2(a))                                   \
    F(log10, log10(a))                                 \
    F(log1p, log1p(a))                                 \
    F(sqrt, sqrt(a))                                   \
    F(sin, sin(a))                                     \
    F(cos, cos(a))                                     \
    F(sinh, sinh(a))                                   \
    F(cosh, cosh(a))                                   \
    F(tanh, tanh(a))                                   \
    F(atan, atan(a))                                   \
    F(asin, asin(a))                                   \
    F(asinh, asinh(a))                                 \
    F(erf, erf(a))                                     \
    F(special_ndtr, 0.5 * erfc(-a * 0.70710678118654752440)) \
    F(special_ndtri, wt_normal_quantile(a))            \
    F(floor, floor(a))                                 \
    F(ceil, ceil(a))                                   \
    F(trunc, trunc(a))                                 \
    F(round, nearbyint(a))                             \
    F(sign, (double)((a > 0) - (a < 0)))               \
    F(relu, a > 0 || a != a ? a : 0)

#define WT_BINARY_FUNCTIONS(F)           \
    F(add, a + b)                        \
    F(sub, a - b)                        \
    F(mul, a *b)                         \
    F(div, a / b)                        \
    F(minimum, wt_minimum(a, b))         \
    F(maximum, wt_maximum(a, b))         \
    F(pow, pow(a, b))                    \
    F(remainder, wt_remainder(a, b))     \
    F(atan2, atan2(a, b))                \
    F(gt, a > b)                         \
    F(ge, a >= b)                        \
    F(lt, a < b)                         \
    F(le, a <= b)                        \
    F(eq, a == b)                        \
    F(ne, a != b)                        \
    F(logical_and, (a != 0) & (b != 0))  \
    F(logical_or, (a != 0) | (b != 0))   \
    F(logical_xor, (a != 0) != (b != 0))

#define WT_NUMBERED(name, expression) WT_FUNCTION_##name,
enum { WT_UNARY_FUNCTIONS(WT_NUMBERED) };
#undef WT_NUMBERED
#define WT_NUMBERED(name, expression) WT_BINARY_##name,
enum { WT_BINARY_FUNCTIONS(WT_NUMBERED) };
#undef WT_NUMBERED

/* facts: function. y = f(x) */
WT_PROCESSORS void wt_unary(const wt_call *call) {
    size_t rows = call->rows;
    for (size_t column = 0; column < call->step->outputs; column++) {
        const double *restrict x = wt_input(call, column);
        double *restrict y = wt_output(call, column);
#define WT_CASE(name, expression)               \
    case WT_FUNCTION_##name:                    \
        for (size_t row = 0; row < rows; row++) { \
            double a = x[row];                  \
            y[row] = (expression);              \
        }                                       \
        break;
        switch (call->facts[0].integer) { WT_UNARY_FUNCTIONS(WT_CASE) }
#undef WT_CASE
    }
}

/* facts: function. The first columns in are a, the other half b. y = f(a, b) */
WT_PROCESSORS void wt_binary(const wt_call *call) {
    size_t rows = call->rows, outputs = call->step->outputs;
    for (size_t column = 0; column < outputs; column++) {
        const double *restrict left = wt_input(call, column), *restrict right = wt_input(call, outputs + column);
        double *restrict y = wt_output(call, column);
#define WT_CASE(name, expression)                   \
    case WT_BINARY_##name:                          \
        for (size_t row = 0; row < rows; row++) {   \
            double a = left[row], b = right[row];   \
            y[row] = (expression);                  \
        }                                           \
        break;
        switch (call->facts[0].integer) { WT_BINARY_FUNCTIONS(WT_CASE) }
#undef WT_CASE
    }
}

/* facts: function, value [outputs]. y = f(x, value) */
WT_PROCESSORS void wt_binary_right(const wt_call *call) {
    size_t rows = call->rows;
    const double *values = wt_tensor(call, 1);
    for (size_t column = 0; column < call->step->outputs; column++) {
        const double *restrict x = wt_input(call, column);
        double *restrict y = wt_output(call, column);
        double b = values[column];
#define WT_CASE(name, expression)               \
    case WT_BINARY_##name:                      \
        for (size_t row = 0; row < rows; row++) { \
            double a = x[row];                  \
            y[row] = (expression);              \
        }                                       \
        break;
        switch (call->facts[0].integer) { WT_BINARY_FUNCTIONS(WT_CASE) }
#undef WT_CASE
    }
}

/* facts: function, value [outputs]. y = f(value, x) */
WT_PROCESSORS void wt_binary_left(const wt_call *call) {
    size_t rows = call->rows;
    const double *values = wt_tensor(call, 1);
    for (size_t column = 0; column < call->step->outputs; column++) {
        const double *restrict x = wt_input(call, column);
        double *restrict y = wt_output(call, column);
        double a = values[column];
#define WT_CASE(name, expression)               \
    case WT_BINARY_##name:                      \
        for (size_t row = 0; row < rows; row++) { \
            double b = x[row];                  \
            y[row] = (expression);              \
        }                                       \
        break;
        switch (call->facts[0].integer) { WT_BINARY_FUNCTIONS(WT_CASE) }
#undef WT_CASE
    }
}

/* The columns in are conditions, a, b, as many of each. y = a where the condition is not 0, else b */
WT_PROCESSORS void wt_select(const wt_call *call) {
    size_t outputs = call->step->outputs;
    for (size_t column = 0; column < outputs; column++) {
        const double *restrict condition = wt_input(call, column);
        const double *restrict a = wt_input(call, outputs + column), *restrict b = wt_input(call, 2 * outputs + column);
        double *restrict y = wt_output(call, column);
        for (size_t row = 0; row < call->rows; row++) y[row] = condition[row] != 0 ? a[row] : b[row];
    }
}

/* facts: value [outputs]. The first columns in are conditions, the other half x. y = value where the condition is not 0,
 * else x */
WT_PROCESSORS void wt_select_value(const wt_call *call) {
    size_t outputs = call->step->outputs;
    const double *values = wt_tensor(call, 0);
    for (size_t column = 0; column < outputs; column++) {
        const double *restrict condition = wt_input(call, column), *restrict x = wt_input(call, outputs + column);
        double *restrict y = wt_output(call, column), value = values[column];
        for (size_t row = 0; row < call->rows; row++) y[row] = condition[row] != 0 ? value : x[row];
    }
}

/* facts: value [outputs]. y = value */
WT_PROCESSORS void wt_constant(const wt_call *call) {
    const double *values = wt_tensor(call, 0);
    for (size_t column = 0; column < call->step->outputs; column++) {
        double *y = wt_output(call, column);
        for (size_t row = 0; row < call->rows; row++) y[row] = values[column];
    }
}

/* facts: fill [inputs], marker. y = fill where x is the marker, which may be NaN, else x */
WT_PROCESSORS void wt_fill(const wt_call *call) {
    const double *fills = wt_tensor(call, 0);
    double marker = call->facts[1].number;
    for (size_t column = 0; column < call->step->outputs; column++) {
        const double *restrict x = wt_input(call, column);
        double *restrict y = wt_output(call, column), fill = fills[column];
        if (marker != marker)
            for (size_t row = 0; row < call->rows; row++) y[row] = x[row] != x[row] ? fill : x[row];
        else
            for (size_t row = 0; row < call->rows; row++) y[row] = x[row] == marker ? fill : x[row];
    }
}
