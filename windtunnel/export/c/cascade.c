/* A cascade: the small model predicts the rows of which it is sure; runs of other rows go to the full model. */
static int is_sure(const double *probabilities) {
    for (size_t at = 0; at < WT_CASCADE_WIDTH; at++)
        if (probabilities[at] >= wt_cascade_confidence) return 1;
    return 0;
}

int PREFIX_predict_proba(const PREFIX_row *rows, size_t count, double *out, void *workspace) {
    int error = wt_small_predict_proba(rows, count, out, workspace);
    for (size_t first = 0, last; error == WT_OK && first < count; first = last) {
        last = first + 1;
        if (is_sure(out + first * WT_CASCADE_WIDTH)) continue;
        while (last < count && !is_sure(out + last * WT_CASCADE_WIDTH)) last++;
        error = wt_full_predict_proba(rows + first, last - first, out + first * WT_CASCADE_WIDTH, workspace);
    }
    return error;
}

int PREFIX_predict(const PREFIX_row *rows, size_t count, int32_t *out, void *workspace) {
    double *probabilities = (double *)(((uintptr_t)workspace + 63) / 64 * 64);
    if (count == 0) return WT_NO_ROWS;
    for (size_t first = 0; first < count; first += WT_CASCADE_BLOCK) {
        size_t some = count - first < WT_CASCADE_BLOCK ? count - first : WT_CASCADE_BLOCK;
        int error = PREFIX_predict_proba(rows + first, some, probabilities, probabilities + WT_CASCADE_BLOCK * WT_CASCADE_WIDTH);
        if (error != WT_OK) return error;
        for (size_t row = 0; row < some; row++) {
            const double *of_row = probabilities + row * WT_CASCADE_WIDTH;
            int32_t best = 0;
            for (int32_t at = 1; at < WT_CASCADE_WIDTH; at++)
                if (of_row[at] > of_row[best]) best = at;
            out[first + row] = best;
        }
    }
    return WT_OK;
}
