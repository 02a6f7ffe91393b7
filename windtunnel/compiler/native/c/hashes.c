/* Table rows of combinations of columns: by the cells of interactions, and by CatBoost's hashes. */
#include "runtime.h"

#define WT_FIRST_AT_OR_ABOVE(name, type)                                \
    static size_t name(const type *keys, size_t count, type key) {      \
        size_t low = 0;                                                 \
        while (count > 0) {                                             \
            size_t half = (count + 1) / 2;                              \
            int below = keys[low + half - 1] < key;                     \
            low += below ? half : 0;                                    \
            count = below ? count - half : half - 1;                    \
        }                                                               \
        return low;                                                     \
    }
WT_FIRST_AT_OR_ABOVE(wt_first_cell, int32_t)
WT_FIRST_AT_OR_ABOVE(wt_first_hash, int64_t)

/* facts: interactions int64 [outputs, order], padded by -1; order; size int64 [inputs]; count, first int64 [outputs];
 * keys int32, ascending; start int64 [outputs + 1]; shift int64 [outputs]; bucket int32; first bucket int64 [outputs].
 * Bucket b of an interaction is the place of its first key with a cell of b << shift or more. Inputs are codes. The cell of an interaction has their codes as
 * the digits of one number, modulo its count. y = the place of first + cell among the keys from start_p to start_{p+1};
 * where it is not among them, p places behind the last of all keys. */
void wt_interaction_rows(const wt_call *call) {
    const int64_t *interactions = wt_tensor(call, 0), *size = wt_tensor(call, 2);
    const int64_t *count = wt_tensor(call, 3), *first = wt_tensor(call, 4), *start = wt_tensor(call, 6);
    const int32_t *keys = wt_tensor(call, 5), *buckets = wt_tensor(call, 8);
    const int64_t *shift = wt_tensor(call, 7), *first_bucket = wt_tensor(call, 9);
    size_t order = (size_t)call->facts[1].integer, outputs = call->step->outputs;
    for (size_t output = 0; output < outputs; output++) {
        const int64_t *columns = interactions + output * order;
        double *y = wt_output(call, output), other = (double)(start[outputs] + (int64_t)output);
        uint64_t modulus = (uint64_t)count[output], most = 1;
        for (size_t place = 0; place < order && columns[place] >= 0 && most <= modulus; place++)
            most *= (uint64_t)size[columns[place]]; /* factors and count are below 2^31 */
        const int32_t *own = keys + start[output], *bucket = buckets + first_bucket[output];
        size_t own_keys = (size_t)(start[output + 1] - start[output]);
        for (size_t row = 0; row < call->rows; row++) {
            uint64_t cell = 0;
            for (size_t place = 0; place < order && columns[place] >= 0; place++) {
                size_t column = (size_t)columns[place];
                cell = cell * (uint64_t)size[column] + wt_index(wt_input(call, column)[row], (size_t)size[column]);
                if (most > modulus) cell %= modulus;
            }
            int32_t key = (int32_t)(first[output] + (int64_t)cell);
            size_t at = (size_t)cell;
            if (own_keys != modulus) {
                const int32_t *range = bucket + (cell >> shift[output]);
                at = (size_t)range[0] + wt_first_cell(own + range[0], (size_t)(range[1] - range[0]), key);
            }
            y[row] = at < own_keys && own[at] == key ? (double)(start[output] + (int64_t)at) : other;
        }
    }
}

/* facts: column, factor, equal, compares int64 [order, combinations]; order; combinations; salt, count int64
 * [combinations]; keys, owner, place int64 [size]; size; combination, first int64 [outputs]; rows. The inputs are
 * hashes. The hash of a combination is its salt and the sum of its factors times hashes, or times whether they are
 * equal to a number, modulo 2^64; y = rows[first + the place of its key, or its count]. scratch: 8 bytes per
 * combination. */
void wt_target_statistics(const wt_call *call) {
    const int64_t *column = wt_tensor(call, 0), *factor = wt_tensor(call, 1), *equal = wt_tensor(call, 2);
    const int64_t *compares = wt_tensor(call, 3), *salt = wt_tensor(call, 6), *count = wt_tensor(call, 7);
    const int64_t *keys = wt_tensor(call, 8), *owner = wt_tensor(call, 9), *place = wt_tensor(call, 10);
    const int64_t *combination = wt_tensor(call, 12), *first = wt_tensor(call, 13);
    const double *table = wt_tensor(call, 14);
    size_t order = (size_t)call->facts[4].integer, combinations = (size_t)call->facts[5].integer;
    size_t size = (size_t)call->facts[11].integer;
    int64_t *found = call->scratch;
    for (size_t row = 0; row < call->rows; row++) {
        for (size_t at = 0; at < combinations; at++) {
            uint64_t hash = (uint64_t)salt[at];
            for (size_t part = at; part < order * combinations; part += combinations) {
                int64_t value = (int64_t)wt_input(call, (size_t)column[part])[row];
                if (compares[part]) value = value == equal[part];
                hash += (uint64_t)value * (uint64_t)factor[part];
            }
            size_t key = wt_first_hash(keys, size, (int64_t)hash);
            int stored = key < size && keys[key] == (int64_t)hash && owner[key] == (int64_t)at;
            found[at] = stored ? place[key] : count[at];
        }
        for (size_t output = 0; output < call->step->outputs; output++)
            wt_output(call, output)[row] = table[first[output] + found[combination[output]]];
    }
}
