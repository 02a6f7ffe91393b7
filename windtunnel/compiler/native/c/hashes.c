/* Table rows of combinations of columns by CatBoost's hashes. */
#include "runtime.h"

static size_t first_hash(const int64_t *keys, size_t count, int64_t key) {
    size_t low = 0;
    while (count > 0) {
        size_t half = (count + 1) / 2;
        int below = keys[low + half - 1] < key;
        low += below ? half : 0;
        count = below ? count - half : half - 1;
    }
    return low;
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
            size_t key = first_hash(keys, size, (int64_t)hash);
            int stored = key < size && keys[key] == (int64_t)hash && owner[key] == (int64_t)at;
            found[at] = stored ? place[key] : count[at];
        }
        for (size_t output = 0; output < call->step->outputs; output++)
            wt_output(call, output)[row] = table[first[output] + found[combination[output]]];
    }
}
