/* The ids of texts, for whole columns: a hash table of UTF-8 for Arrow's buffers, a dict for Python's objects. */
#include "extension.h"

#include <math.h>
#include <string.h>

enum { UNKNOWN_ID = 0, MISSING_ID = 1 };

typedef struct {
    const char *bytes; /* NULL in a free place; the text belongs to the dict */
    size_t length;
    uint64_t hash;
    int64_t id;
} entry;

typedef struct {
    PyObject_HEAD
    PyObject *ids;  /* dict: text -> id */
    entry *entries; /* open addressing: a text stands at its hash, or at the next free place */
    size_t mask;    /* number of places - 1; the number is a power of two */
} Vocabulary;

/* Words of 8 bytes, multiplied and folded; the last one may overlap the one before. */
static uint64_t hash_of(const char *bytes, size_t length) {
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t hash = length * factor, word = 0;
    for (size_t at = 0; at + 8 <= length; at += 8) {
        memcpy(&word, bytes + at, 8);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 32;
    }
    word = 0;
    if (length >= 8) memcpy(&word, bytes + length - 8, 8);
    else
        for (size_t at = 0; at < length; at++) word = word << 8 | (unsigned char)bytes[at];
    hash = (hash ^ word) * factor;
    return hash ^ hash >> 32;
}

/* The place of a text, or the free place where it would stand. */
static entry *place_of(const Vocabulary *self, const char *bytes, size_t length, uint64_t hash) {
    for (size_t at = hash & self->mask;; at = (at + 1) & self->mask) {
        entry *each = self->entries + at;
        if (each->bytes == NULL) return each;
        if (each->hash == hash && each->length == length && memcmp(each->bytes, bytes, length) == 0) return each;
    }
}

static int fill(Vocabulary *self) {
    size_t places = 8;
    while (places < 2 * (size_t)PyDict_Size(self->ids)) places *= 2;
    self->mask = places - 1;
    self->entries = PyMem_Calloc(places, sizeof(entry));
    if (self->entries == NULL) return PyErr_NoMemory(), -1;
    PyObject *text, *id;
    for (Py_ssize_t at = 0; PyDict_Next(self->ids, &at, &text, &id);) {
        Py_ssize_t length;
        const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
        if (bytes == NULL) { /* half a surrogate pair, which no UTF-8 holds */
            PyErr_Clear();
            continue;
        }
        uint64_t hash = hash_of(bytes, (size_t)length);
        *place_of(self, bytes, (size_t)length, hash) = (entry){bytes, (size_t)length, hash, PyLong_AsLongLong(id)};
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Vocabulary(ids): a dict of text -> id, which nobody changes. */
static PyObject *vocabulary_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *ids;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!:Vocabulary", &PyDict_Type, &ids)) return NULL;
    allocfunc create = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Vocabulary *self = (Vocabulary *)create(type, 0);
    if (self == NULL) return NULL;
    self->ids = PyDict_Copy(ids);
    if (self->ids == NULL || fill(self) != 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void vocabulary_free(PyObject *object) {
    Vocabulary *self = (Vocabulary *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(self->entries);
    Py_XDECREF(self->ids);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* A column of Arrow: texts first .. first + rows of its buffers. */
typedef struct {
    Py_buffer valid, offsets, bytes;
    int wide; /* whether offsets have 8 bytes, else 4 */
    Py_ssize_t first;
} texts;

static int64_t offset_at(const texts *column, Py_ssize_t row) {
    const char *offsets = column->offsets.buf;
    if (column->wide) {
        int64_t offset;
        memcpy(&offset, offsets + 8 * row, 8);
        return offset;
    }
    int32_t offset;
    memcpy(&offset, offsets + 4 * row, 4);
    return offset;
}

/* Fill the ids of all rows; 0 if an offset points out of the bytes. */
static int look_up(const Vocabulary *self, const texts *column, Py_ssize_t rows, int64_t *ids) {
    const unsigned char *valid = column->valid.buf;
    for (Py_ssize_t row = 0; row < rows; row++) {
        Py_ssize_t at = column->first + row;
        if (valid != NULL && !(valid[at / 8] >> at % 8 & 1)) {
            ids[row] = MISSING_ID;
            continue;
        }
        int64_t start = offset_at(column, at), end = offset_at(column, at + 1);
        if (start < 0 || end < start || end > column->bytes.len) return 0;
        const char *bytes = column->bytes.buf == NULL ? "" : (const char *)column->bytes.buf + start;
        const entry *each = place_of(self, bytes, (size_t)(end - start), hash_of(bytes, (size_t)(end - start)));
        ids[row] = each->bytes == NULL ? UNKNOWN_ID : each->id;
    }
    return 1;
}

/* Whether the buffers hold as many texts as they are said to. */
static int complete(const texts *column, Py_ssize_t rows) {
    Py_ssize_t end = column->first + rows;
    if (column->first < 0 || end > PY_SSIZE_T_MAX / 16) return 0;
    return column->offsets.len >= (end + 1) * (column->wide ? 8 : 4) && (column->valid.buf == NULL || column->valid.len >= (end + 7) / 8);
}

/* of_arrow(validity, offsets, bytes, wide, first, ids): whether it could fill ids, int64 and contiguous. */
static PyObject *vocabulary_of_arrow(PyObject *object, PyObject *args) {
    texts column = {.first = 0};
    Py_buffer ids;
    if (!PyArg_ParseTuple(args, "z*y*z*pnw*:of_arrow", &column.valid, &column.offsets, &column.bytes, &column.wide, &column.first, &ids)) return NULL;
    Py_ssize_t rows = ids.len / 8;
    int done = complete(&column, rows);
    if (done) {
        Py_BEGIN_ALLOW_THREADS
        done = look_up((Vocabulary *)object, &column, rows, ids.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&column.valid);
    PyBuffer_Release(&column.offsets);
    PyBuffer_Release(&column.bytes);
    PyBuffer_Release(&ids);
    return PyBool_FromLong(done);
}

/* The id of an object; -1 for one that is neither a text nor missing. */
static int64_t id_of(const Vocabulary *self, PyObject *value) {
    if (value == Py_None || (PyFloat_CheckExact(value) && isnan(PyFloat_AsDouble(value)))) return MISSING_ID;
    if (!PyUnicode_CheckExact(value)) return -1;
    PyObject *id = PyDict_GetItemWithError(self->ids, value);
    return id == NULL ? UNKNOWN_ID : PyLong_AsLongLong(id);
}

/* of_objects(values, ids): whether it could fill ids. values: an array of objects in one dimension. */
static PyObject *vocabulary_of_objects(PyObject *object, PyObject *args) {
    PyObject *array;
    Py_buffer values, ids;
    if (!PyArg_ParseTuple(args, "Ow*:of_objects", &array, &ids)) return NULL;
    if (PyObject_GetBuffer(array, &values, PyBUF_FORMAT | PyBUF_STRIDES) != 0) return PyBuffer_Release(&ids), NULL;
    Py_ssize_t rows = ids.len / 8;
    int done = values.ndim == 1 && strcmp(values.format, "O") == 0 && values.shape[0] == rows;
    for (Py_ssize_t row = 0; row < rows && done; row++) {
        PyObject *value;
        memcpy(&value, (const char *)values.buf + row * values.strides[0], sizeof(value));
        int64_t id = id_of((Vocabulary *)object, value);
        memcpy((int64_t *)ids.buf + row, &id, sizeof(id));
        done = id >= 0;
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&ids);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

static PyMethodDef vocabulary_methods[] = {
    {"of_arrow", vocabulary_of_arrow, METH_VARARGS, "of_arrow(validity, offsets, bytes, wide, first, ids): whether it could fill ids"},
    {"of_objects", vocabulary_of_objects, METH_VARARGS, "of_objects(values, ids): whether it could fill ids"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot vocabulary_slots[] = {
    {Py_tp_new, vocabulary_new},
    {Py_tp_dealloc, vocabulary_free},
    {Py_tp_methods, vocabulary_methods},
    {0, NULL},
};

PyType_Spec vocabulary_spec = {
    .name = "windtunnel_native.Vocabulary",
    .basicsize = sizeof(Vocabulary),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = vocabulary_slots,
};
