/* Categories: the id of a value, or an error. Ids are 0 for an unknown and 1 for a missing category, then the values. */
#include <math.h>
#include <string.h>

enum { WT_TAKES_UNKNOWN = 1, WT_TAKES_MISSING = 2, WT_TAKES_INFINITE = 4, WT_TAKES_FRACTIONS = 8 };

typedef struct {
    const char *value;
    int64_t id;
} wt_text;

typedef struct {
    double value;
    int64_t id;
} wt_number;

/* texts: sorted by their bytes. */
static inline int wt_text_id(const char *value, const wt_text *texts, size_t count, int takes, int64_t *id) {
    if (value == NULL) {
        *id = 1;
        return takes & WT_TAKES_MISSING ? WT_OK : WT_MISSING_CATEGORY;
    }
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        int order = strcmp(texts[middle].value, value);
        if (order == 0) {
            *id = texts[middle].id;
            return WT_OK;
        }
        if (order < 0) low = middle + 1;
        else count = middle;
    }
    *id = 0;
    return takes & WT_TAKES_UNKNOWN ? WT_OK : WT_UNKNOWN_CATEGORY;
}

static inline int wt_number_id(double value, const wt_number *numbers, size_t count, int takes, int64_t *id) {
    if (isnan(value)) {
        *id = 1;
        return takes & WT_TAKES_MISSING ? WT_OK : WT_MISSING_CATEGORY;
    }
    if (isinf(value) && !(takes & WT_TAKES_INFINITE)) return WT_INFINITE_CATEGORY;
    if (!(takes & WT_TAKES_FRACTIONS) && !(fabs(value) < 0x1p63 && value == floor(value))) return WT_FRACTION;
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (numbers[middle].value == value) {
            *id = numbers[middle].id;
            return WT_OK;
        }
        if (numbers[middle].value < value) low = middle + 1;
        else count = middle;
    }
    *id = 0;
    return takes & WT_TAKES_UNKNOWN ? WT_OK : WT_UNKNOWN_CATEGORY;
}

enum { WT_REJECTS_NAN = 1, WT_REJECTS_INFINITE = 2, WT_REJECTS_HUGE = 4, WT_REJECTS_OUTSIDE = 8 };

/* Whether a number is one of those that the source rejects, or says that a step rejects the row. */
static inline int wt_rejected(double number, int rejects) {
    return ((rejects & WT_REJECTS_OUTSIDE) && number != 0) || ((rejects & WT_REJECTS_NAN) && isnan(number)) || ((rejects & WT_REJECTS_INFINITE) && isinf(number)) ||
           ((rejects & WT_REJECTS_HUGE) && fabs(number) >= 3.4028235677973366e38 && !isinf(number));
}
