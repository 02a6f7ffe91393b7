/*
 * Raw rows of Python to the output of a method: arrays of numbers or objects, lists of lists, dicts of lists.
 *
 * A scorer takes ordinary rows only: numbers that no step rejects, and categories that its tables hold. For all others
 * a call gives None, and the caller goes the general way, which has the messages.
 */
#include "extension.h"

#include <math.h>
#include <string.h>

enum { UNKNOWN_ID = 0, MISSING_ID = 1, FIRST_ID = 2 };
enum { FEWEST_ROWS = 64 }; /* of a thread */

typedef struct {
    long long column; /* of the raw rows */
    long long texts, takes_unknown, takes_missing, takes_infinite, takes_fractions;
    PyObject *ids; /* dict of text or float -> id; borrowed from the scorer's tuple */
} category;

typedef struct {
    PyObject_HEAD
    Program *program, *head; /* head: from raw scores to the output, or NULL */
    PyObject *facts;         /* owns what the fields below borrow */
    PyObject *tables, *members, *tensors, *versions, *parameters, *pointers; /* tuples; see current */
    PyObject *subject, *array, *empty, *finish, *names, *threads;
    PyObject *shape; /* of the output for one row */
    Py_ssize_t width, numbers, categories, outputs;
    int float32_numbers, float32_scores, float32_output; /* whether these are float32 */
    int one_row_only;
    int positions, flat, takes_missing, needs_names, in_order;
    int64_t *number_columns;
    category *category;
} Scorer;

/* Rows as they came: the item at a row and a raw column. */
typedef struct {
    Py_ssize_t rows;
    Py_buffer buffer;    /* of an array; obj is NULL for others */
    char format;         /* d, f, l: numbers of an array; O: objects of an array; R: list of lists; C: columns of a dict */
    PyObject *sequence;  /* of R */
    PyObject **columns;  /* of C: the list of each raw column that is read, else NULL */
} raw_rows;

static PyObject *VERSION, *DATA_PTR;

/* Whether no tensor or module was replaced, no tensor of the tuple written to, and no parameter moved. */
static int current(const Scorer *self) {
    Py_ssize_t at = 0;
    for (Py_ssize_t table = 0; table < PyTuple_Size(self->tables); table++) {
        PyObject *name, *member;
        for (Py_ssize_t place = 0; PyDict_Next(PyTuple_GetItem(self->tables, table), &place, &name, &member); at++)
            if (at >= PyTuple_Size(self->members) || member != PyTuple_GetItem(self->members, at)) return 0;
    }
    if (at != PyTuple_Size(self->members)) return 0;
    PyObject *lists[2][3] = {{self->tensors, self->versions, VERSION}, {self->parameters, self->pointers, DATA_PTR}};
    for (int kind = 0; kind < 2; kind++) {
        for (Py_ssize_t tensor = 0; tensor < PyTuple_Size(lists[kind][0]); tensor++) {
            PyObject *object = PyTuple_GetItem(lists[kind][0], tensor);
            PyObject *state = kind == 0 ? PyObject_GetAttr(object, VERSION)
                                        : PyObject_CallMethodObjArgs(object, DATA_PTR, NULL);
            if (state == NULL) return -1;
            int same = PyObject_RichCompareBool(state, PyTuple_GetItem(lists[kind][1], tensor), Py_EQ);
            Py_DECREF(state);
            if (same != 1) return same;
        }
    }
    return 1;
}

/* A Python number, NaN for None; 0 for anything else. */
static int as_number(PyObject *value, double *number) {
    if (PyFloat_Check(value)) {
        *number = PyFloat_AsDouble(value);
        return 1;
    }
    if (value == Py_None) {
        *number = NAN;
        return 1;
    }
    if (!PyLong_CheckExact(value) && !PyBool_Check(value)) return 0;
    *number = PyLong_AsDouble(value);
    if (*number == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* The id of a category; -1 where the general way has to decide. */
static int64_t id_of(const category *column, PyObject *value, double number) {
    int missing = value != NULL && column->texts
                      ? value == Py_None || (PyFloat_CheckExact(value) && isnan(PyFloat_AsDouble(value)))
                      : isnan(number);
    if (missing) return column->takes_missing ? MISSING_ID : -1;
    PyObject *key;
    if (column->texts) {
        if (value == NULL || !PyUnicode_CheckExact(value)) return -1;
        key = Py_NewRef(value);
    } else {
        if (!column->takes_infinite && isinf(number)) return -1;
        if (!column->takes_fractions && !(fabs(number) < 0x1p53 && number == floor(number))) return -1;
        key = PyFloat_FromDouble(number);
    }
    if (key == NULL) return -1;
    PyObject *id = PyDict_GetItemWithError(column->ids, key);
    Py_DECREF(key);
    if (id != NULL) return PyLong_AsLongLong(id);
    return column->takes_unknown ? UNKNOWN_ID : -1;
}

/* The object at a row and a raw column, borrowed; NULL in an array of numbers. */
static PyObject *object_at(const raw_rows *rows, Py_ssize_t row, Py_ssize_t column) {
    if (rows->format == 'C') return PyList_GetItem(rows->columns[column], row);
    if (rows->format == 'R') {
        PyObject *values = PyList_GetItem(rows->sequence, row);
        return PyList_CheckExact(values) ? PyList_GetItem(values, column) : PyTuple_GetItem(values, column);
    }
    if (rows->format != 'O') return NULL;
    const char *place = (const char *)rows->buffer.buf + row * rows->buffer.strides[0] + column * rows->buffer.strides[1];
    PyObject *object;
    memcpy(&object, place, sizeof(object));
    return object;
}

static double number_at(const raw_rows *rows, Py_ssize_t row, Py_ssize_t column) {
    const char *place = (const char *)rows->buffer.buf + row * rows->buffer.strides[0] + column * rows->buffer.strides[1];
    if (rows->format == 'd') {
        double number;
        memcpy(&number, place, sizeof(number));
        return number;
    }
    if (rows->format == 'f') {
        float number;
        memcpy(&number, place, sizeof(number));
        return number;
    }
    long number;
    memcpy(&number, place, sizeof(number));
    return (double)number;
}

/* Encode rows; 0 where the general way has to decide. */
static int encode(const Scorer *self, const raw_rows *rows, double *numbers, int64_t *ids) {
    for (Py_ssize_t row = 0; row < rows->rows; row++) {
        for (Py_ssize_t at = 0; at < self->numbers; at++) {
            PyObject *value = object_at(rows, row, (Py_ssize_t)self->number_columns[at]);
            double number;
            if (value == NULL) number = number_at(rows, row, (Py_ssize_t)self->number_columns[at]);
            else if (!as_number(value, &number)) return 0;
            /* Up to here no product of a step overflows. */
            if (!(fabs(number) <= 0x1p64) && !(self->takes_missing && isnan(number))) return 0;
            *numbers++ = self->float32_numbers ? (double)(float)number : number;
        }
        for (Py_ssize_t at = 0; at < self->categories; at++) {
            const category *column = self->category + at;
            PyObject *value = object_at(rows, row, (Py_ssize_t)column->column);
            double number = NAN;
            if (value == NULL) number = number_at(rows, row, (Py_ssize_t)column->column);
            else if (!column->texts && !as_number(value, &number)) return 0;
            int64_t id = id_of(column, value, number);
            if (id < (self->takes_missing ? 0 : FIRST_ID)) return 0;
            *ids++ = id;
        }
    }
    return 1;
}

/* The lists of the raw columns in a dict of equally long lists; 0 where the general way has to decide. */
static int open_columns(const Scorer *self, PyObject *dict, raw_rows *rows) {
    PyObject *name, *list;
    for (Py_ssize_t place = 0; PyDict_Next(dict, &place, &name, &list);) {
        if (!PyUnicode_CheckExact(name) || !PyList_CheckExact(list)) return 0;
        if (rows->rows >= 0 && PyList_Size(list) != rows->rows) return 0;
        rows->rows = PyList_Size(list);
    }
    for (Py_ssize_t column = 0; column < self->width; column++) {
        rows->columns[column] = PyDict_GetItemWithError(dict, PyTuple_GetItem(self->names, column));
    }
    for (Py_ssize_t at = 0; at < self->numbers; at++)
        if (rows->columns[self->number_columns[at]] == NULL) return 0;
    for (Py_ssize_t at = 0; at < self->categories; at++)
        if (rows->columns[self->category[at].column] == NULL) return 0;
    return 1;
}

static int open_lists(const Scorer *self, PyObject *list, raw_rows *rows) {
    rows->rows = PyList_Size(list);
    for (Py_ssize_t row = 0; row < rows->rows; row++) {
        PyObject *values = PyList_GetItem(list, row);
        if (!PyList_CheckExact(values) && !PyTuple_CheckExact(values)) return 0;
        if (PySequence_Size(values) != self->width) return 0;
    }
    rows->sequence = list;
    return 1;
}

/* Open rows of an accepted kind; 0 where the general way has to decide. */
static int open_rows(const Scorer *self, PyObject *object, raw_rows *rows) {
    if (PyDict_CheckExact(object)) {
        if (self->names == Py_None) return 0;
        rows->format = 'C';
        rows->columns = PyMem_Calloc((size_t)self->width, sizeof(PyObject *));
        return rows->columns != NULL && open_columns(self, object, rows);
    }
    if (self->needs_names) return 0;
    if (PyList_CheckExact(object)) {
        rows->format = 'R';
        return open_lists(self, object, rows);
    }
    if ((PyObject *)Py_TYPE(object) != self->array) return 0;
    if (PyObject_GetBuffer(object, &rows->buffer, PyBUF_FORMAT | PyBUF_STRIDES) != 0) return 0;
    const char *format = rows->buffer.format;
    if (rows->buffer.ndim != 2 || rows->buffer.shape[1] != self->width || format == NULL || strlen(format) != 1) return 0;
    rows->rows = rows->buffer.shape[0];
    rows->format = *format;
    return strchr("dflO", rows->format) != NULL;
}

static void close_rows(raw_rows *rows) {
    if (rows->buffer.obj != NULL) PyBuffer_Release(&rows->buffer);
    PyMem_Free(rows->columns);
}

/* A new array for the output. */
static PyObject *new_output(const Scorer *self, Py_ssize_t rows, Py_buffer *buffer) {
    PyObject *shape = rows == 1   ? Py_NewRef(self->shape)
                      : self->flat ? Py_BuildValue("(n)", rows)
                                   : Py_BuildValue("(nn)", rows, self->outputs);
    if (shape == NULL) return NULL;
    PyObject *array = PyObject_CallFunctionObjArgs(self->empty, shape, NULL);
    Py_DECREF(shape);
    if (array != NULL && PyObject_GetBuffer(array, buffer, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) Py_CLEAR(array);
    return array;
}

/* How many threads may share so many rows. */
static size_t threads_for(const Scorer *self, Py_ssize_t rows) {
    if (rows < 2 * FEWEST_ROWS) return 1;
    PyObject *threads = PyObject_CallFunctionObjArgs(self->threads, NULL);
    long count = threads == NULL ? 1 : PyLong_AsLong(threads);
    Py_XDECREF(threads);
    PyErr_Clear();
    return count > 1 ? (size_t)count : 1;
}

/* The output of encoded rows; NULL without an exception if a number is not accepted. */
static PyObject *score(const Scorer *self, const wt_rows *encoded, accepted_numbers accepted) {
    Py_buffer buffer;
    size_t threads = threads_for(self, (Py_ssize_t)encoded->rows);
    Py_ssize_t rows = (Py_ssize_t)encoded->rows;
    PyObject *array = new_output(self, rows, &buffer);
    if (array == NULL) return NULL;
    wt_rows through = *encoded;
    size_t scores = (size_t)self->program->image->outputs, count = (size_t)rows * scores;
    size_t outputs = (size_t)(rows * self->outputs);
    double few_outputs[64], *output = !self->float32_output ? buffer.buf : outputs <= 64 ? few_outputs : PyMem_Malloc(outputs * sizeof(double));
    double few[64], *memory = self->head == NULL ? output : count <= 64 ? few : PyMem_Malloc(count * sizeof(double));
    int failed = memory == NULL || output == NULL;
    if (failed) PyErr_NoMemory();
    through.out = memory;
    failed = failed || program_compute(self->program, &through, threads, accepted) != 0;
    if (!failed && self->float32_scores)
        for (size_t at = 0; at < count; at++) memory[at] = (double)(float)memory[at];
    if (!failed && self->head != NULL) {
        wt_rows linked = {.rows = encoded->rows, .numbers = memory, .number_row = (ptrdiff_t)scores, .number_column = 1};
        linked.out = output;
        failed = program_compute(self->head, &linked, threads, ANY_NUMBERS) != 0;
    }
    if (!failed && self->positions) {
        double *positions = buffer.buf;
        for (Py_ssize_t at = 0; at < rows * self->outputs; at++) {
            int64_t position = (int64_t)positions[at];
            memcpy(positions + at, &position, sizeof(position));
        }
    }
    if (!failed && self->float32_output)
        for (size_t at = 0; at < outputs; at++) ((float *)buffer.buf)[at] = (float)output[at];
    if (self->head != NULL && memory != few) PyMem_Free(memory);
    if (self->float32_output && output != few_outputs) PyMem_Free(output);
    PyBuffer_Release(&buffer);
    if (failed) Py_CLEAR(array);
    if (failed || self->finish == Py_None) return array;
    PyObject *finished = PyObject_CallFunctionObjArgs(self->finish, array, NULL);
    Py_DECREF(array);
    return finished;
}

/* scorer(rows, subject): the output, or None where the general way has to decide. */
static PyObject *scorer_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    const Scorer *self = (Scorer *)object;
    PyObject *given, *subject, *output = NULL;
    (void)kwargs;
    if (!PyArg_UnpackTuple(args, "Scorer", 2, 2, &given, &subject)) return NULL;
    int fresh = subject == self->subject ? current(self) : 0;
    if (fresh < 0) return NULL;
    if (!fresh) return Py_NewRef(Py_None);
    raw_rows rows = {.rows = -1};
    double few_numbers[128], *numbers = few_numbers;
    int64_t few_ids[64], *ids = few_ids;
    if (!open_rows(self, given, &rows) || rows.rows < 1 || (self->one_row_only && rows.rows > 1)) goto decline;
    wt_rows encoded = {.rows = (size_t)rows.rows};
    accepted_numbers accepted = ANY_NUMBERS; /* encode has checked them */
    if (rows.format == 'd' && self->in_order && (uintptr_t)rows.buffer.buf % 8 == 0 && rows.buffer.strides[0] % 8 == 0 && rows.buffer.strides[1] == 8) {
        accepted = self->takes_missing ? ORDINARY_OR_MISSING : ORDINARY_NUMBERS;
        encoded.numbers = rows.buffer.buf;
        encoded.number_row = rows.buffer.strides[0] / 8;
    } else {
        if (rows.rows * self->numbers > 128) numbers = PyMem_Malloc((size_t)(rows.rows * self->numbers) * sizeof(double));
        if (rows.rows * self->categories > 64) ids = PyMem_Malloc((size_t)(rows.rows * self->categories) * sizeof(int64_t));
        if (numbers == NULL || ids == NULL || !encode(self, &rows, numbers, ids)) goto decline;
        encoded.numbers = numbers;
        encoded.number_row = self->numbers;
    }
    encoded.number_column = encoded.id_column = 1;
    encoded.ids = ids;
    encoded.id_row = self->categories;
    output = score(self, &encoded, accepted);
    if (output != NULL || PyErr_Occurred()) goto done;
decline:
    PyErr_Clear();
    output = Py_NewRef(Py_None);
done:
    if (numbers != few_numbers) PyMem_Free(numbers);
    if (ids != few_ids) PyMem_Free(ids);
    close_rows(&rows);
    return output;
}

static int fill_columns(Scorer *self, PyObject *columns, PyObject *categories) {
    self->numbers = PyTuple_Size(columns);
    self->categories = PyTuple_Size(categories);
    self->number_columns = PyMem_Calloc((size_t)self->numbers + 1, sizeof(int64_t));
    self->category = PyMem_Calloc((size_t)self->categories + 1, sizeof(category));
    if (self->number_columns == NULL || self->category == NULL) return -1;
    self->in_order = self->numbers == self->width && self->categories == 0 && !self->float32_numbers;
    for (Py_ssize_t at = 0; at < self->numbers; at++) {
        self->number_columns[at] = PyLong_AsLongLong(PyTuple_GetItem(columns, at));
        self->in_order &= self->number_columns[at] == at;
    }
    for (Py_ssize_t at = 0; at < self->categories; at++) {
        category *each = self->category + at;
        if (!PyArg_ParseTuple(PyTuple_GetItem(categories, at), "LLLLLLO", &each->column, &each->texts,
                              &each->takes_unknown, &each->takes_missing, &each->takes_infinite,
                              &each->takes_fractions, &each->ids)) return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Take the fields from the facts, which own them. */
static int fill_scorer(Scorer *self) {
    static char *names[] = {
        "program", "head", "finish", "subject", "tables", "members", "tensors", "versions", "parameters", "pointers",
        "array", "names", "needs_names", "width", "number_columns", "categories", "takes_missing", "threads",
        "one_row_only", "float32_numbers", "float32_scores", "float32_output", "empty", "shape", "flat", "positions",
        NULL,
    };
    PyObject *head, *columns, *categories, *nothing = PyTuple_New(0);
    int taken = nothing != NULL && PyArg_ParseTupleAndKeywords(
        nothing, self->facts, "OOOO" "OOOOOO" "OOpn" "OO" "pOp" "ppp" "OOpp:Scorer", names,
        &self->program, &head, &self->finish, &self->subject,
        &self->tables, &self->members, &self->tensors, &self->versions, &self->parameters, &self->pointers,
        &self->array, &self->names, &self->needs_names, &self->width,
        &columns, &categories,
        &self->takes_missing, &self->threads, &self->one_row_only,
        &self->float32_numbers, &self->float32_scores, &self->float32_output,
        &self->empty, &self->shape, &self->flat, &self->positions);
    Py_XDECREF(nothing);
    if (!taken) return -1;
    self->head = head == Py_None ? NULL : (Program *)head;
    self->outputs = (Py_ssize_t)(self->head == NULL ? self->program : self->head)->image->outputs;
    return fill_columns(self, columns, categories);
}

/* Scorer(facts): a dict with the fields that fill_scorer takes. */
static PyObject *scorer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *facts;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!:Scorer", &PyDict_Type, &facts)) return NULL;
    if (VERSION == NULL) VERSION = PyUnicode_InternFromString("_version");
    if (DATA_PTR == NULL) DATA_PTR = PyUnicode_InternFromString("data_ptr");
    allocfunc create = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Scorer *self = (Scorer *)create(type, 0);
    if (self == NULL) return NULL;
    self->facts = PyDict_Copy(facts);
    if (self->facts == NULL || fill_scorer(self) != 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void scorer_free(PyObject *object) {
    Scorer *self = (Scorer *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(self->number_columns);
    PyMem_Free(self->category);
    Py_XDECREF(self->facts);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* current(subject): whether the program is still what the scorer was made of. */
static PyObject *scorer_current(PyObject *object, PyObject *subject) {
    const Scorer *self = (Scorer *)object;
    int fresh = subject == self->subject ? current(self) : 0;
    return fresh < 0 ? NULL : PyBool_FromLong(fresh);
}

static PyMethodDef scorer_methods[] = {
    {"current", scorer_current, METH_O, "current(subject): whether the program is still what the scorer was made of"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scorer_slots[] = {
    {Py_tp_new, scorer_new},
    {Py_tp_dealloc, scorer_free},
    {Py_tp_call, scorer_call},
    {Py_tp_methods, scorer_methods},
    {0, NULL},
};

PyType_Spec scorer_spec = {
    .name = "windtunnel_native.Scorer",
    .basicsize = sizeof(Scorer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = scorer_slots,
};
