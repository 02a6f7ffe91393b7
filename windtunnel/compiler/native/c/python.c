/* Native programs for Python: a type that holds an image and its workspaces. */
#include "extension.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct workspace {
    struct workspace *next;
    size_t bytes;
} workspace;

enum { ALIGNMENT = 64 };

static void *allocate(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, ALIGNMENT, bytes) == 0 ? memory : NULL;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"image", NULL};
    Py_buffer image;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*:Program", names, &image)) return NULL;
    allocfunc create = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Program *self = (Program *)create(type, 0);
    if (self != NULL) {
        self->free = NULL;
        self->row_seconds = 0;
        self->image = allocate((size_t)image.len);
        if (self->image == NULL) {
            Py_DECREF(self);
            self = (Program *)PyErr_NoMemory();
        } else {
            memcpy(self->image, image.buf, (size_t)image.len);
        }
    }
    PyBuffer_Release(&image);
    return (PyObject *)self;
}

static void program_free(PyObject *object) {
    Program *self = (Program *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (workspace *space = self->free; space != NULL;) {
        workspace *next = space->next;
        free(space);
        space = next;
    }
    free(self->image);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* A workspace for so many rows, from the free ones if one is large enough. Its memory starts ALIGNMENT bytes in. */
static workspace *take_workspace(Program *self, size_t rows) {
    size_t bytes = wt_workspace_bytes(self->image, rows) + ALIGNMENT;
    workspace *space = self->free;
    if (space != NULL) {
        self->free = space->next;
        if (space->bytes >= bytes) return space;
        free(space);
    }
    space = allocate(bytes);
    if (space != NULL) space->bytes = bytes;
    return space;
}

static void give_back(Program *self, workspace *space) {
    space->next = self->free;
    self->free = space;
}

/* ---- Threads ---- */

enum { MANY_ROWS = 64, MOST_THREADS = 64 };

/* What a thread has to do to be worth its start, which takes 10 to 20 us. */
static const double THREAD_SECONDS = 50e-6;

/* Rows that several threads compute, block by block: who is done first takes the next one. */
typedef struct {
    const wt_program *image;
    const wt_rows *rows;
    accepted_numbers accepted;
    atomic_size_t next;   /* row that no thread has taken */
    atomic_int rejected;  /* whether a row has a number that is not accepted */
} shared_rows;

/* A thread at work. */
typedef struct {
    shared_rows *of;
    workspace *space;
    size_t rows; /* that it has computed */
    pthread_t thread;
    int started;
} worker;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether numbers are ordinary or, where that is accepted, missing. */
WT_PROCESSORS static int ordinary(const double *numbers, size_t count, int takes_missing) {
    int64_t other = 0, missing = 0;
    for (size_t at = 0; at < count; at++) {
        other += !(fabs(numbers[at]) <= 0x1p64);
        missing += isnan(numbers[at]) != 0;
    }
    return other == (takes_missing ? missing : 0);
}

/* Whether the numbers of rows, whose columns stand close together, are accepted. */
static int accepts(const wt_rows *rows, size_t numbers, accepted_numbers accepted) {
    int takes_missing = accepted == ORDINARY_OR_MISSING;
    if (accepted == ANY_NUMBERS) return 1;
    if (rows->number_row == (ptrdiff_t)numbers) return ordinary(rows->numbers, rows->rows * numbers, takes_missing);
    for (size_t row = 0; row < rows->rows; row++)
        if (!ordinary(rows->numbers + (ptrdiff_t)row * rows->number_row, numbers, takes_missing)) return 0;
    return 1;
}

static void *run_worker(void *argument) {
    worker *self = argument;
    const wt_program *image = self->of->image;
    size_t block = (size_t)image->block_rows, all = self->of->rows->rows, first;
    while ((first = atomic_fetch_add(&self->of->next, block)) < all) {
        wt_rows part = *self->of->rows;
        part.rows = all - first < block ? all - first : block;
        part.numbers += (ptrdiff_t)first * part.number_row;
        part.ids += (ptrdiff_t)first * part.id_row;
        part.out += first * (size_t)image->outputs;
        /* The numbers of a block are checked just before they are read, so that they come from memory once. */
        if (!accepts(&part, (size_t)image->numbers, self->of->accepted)) atomic_store(&self->of->rejected, 1);
        if (atomic_load(&self->of->rejected)) break;
        wt_run(image, &part, (unsigned char *)self->space + ALIGNMENT);
        self->rows += part.rows;
    }
    return NULL;
}

/* Run workers, the first one in this thread; gives the seconds that it takes for a row. */
static double run_workers(worker *workers, size_t count) {
    for (size_t at = 1; at < count; at++)
        workers[at].started = pthread_create(&workers[at].thread, NULL, run_worker, workers + at) == 0;
    double start = seconds_now();
    run_worker(workers);
    double seconds = seconds_now() - start;
    for (size_t at = 1; at < count; at++)
        if (workers[at].started) pthread_join(workers[at].thread, NULL);
    return workers->rows == 0 ? 0 : seconds / (double)workers->rows;
}

static size_t worthwhile_threads(const Program *self, size_t rows, size_t threads) {
    double worth = (double)rows * self->row_seconds / THREAD_SECONDS;
    size_t most = threads < MOST_THREADS ? threads : MOST_THREADS;
    return worth < 2 || most < 2 ? 1 : worth < (double)most ? (size_t)worth : most;
}

int program_compute(Program *self, const wt_rows *rows, size_t threads, accepted_numbers accepted) {
    shared_rows shared = {.image = self->image, .rows = rows, .accepted = accepted};
    worker workers[MOST_THREADS];
    size_t block = (size_t)self->image->block_rows, blocks = (rows->rows + block - 1) / block, ready = 0;
    size_t count = worthwhile_threads(self, rows->rows, threads);
    if (count > blocks) count = blocks;
    for (; ready < count; ready++) {
        workers[ready] = (worker){.of = &shared, .space = take_workspace(self, rows->rows)};
        if (workers[ready].space == NULL) break;
    }
    if (ready < count) {
        PyErr_NoMemory();
    } else if (rows->rows == 1) { /* without the cost of letting go of the GIL */
        run_worker(workers);
    } else if (count > 0) {
        double seconds;
        Py_BEGIN_ALLOW_THREADS
        seconds = run_workers(workers, count);
        Py_END_ALLOW_THREADS
        if (rows->rows >= MANY_ROWS && workers->rows != 0) self->row_seconds = seconds;
    }
    for (size_t at = 0; at < ready; at++) give_back(self, workers[at].space);
    return ready < count ? -1 : atomic_load(&shared.rejected);
}

/* Take a buffer of 8-byte items in two dimensions; width is what the second one has to be. */
static int two_dimensions(PyObject *object, Py_buffer *buffer, int flags, const char *name, uint64_t width) {
    if (PyObject_GetBuffer(object, buffer, flags | PyBUF_STRIDES) != 0) return -1;
    if (buffer->ndim == 2 && buffer->itemsize == 8 && (uint64_t)buffer->shape[1] == width) return 0;
    PyErr_Format(PyExc_ValueError, "%s must have two dimensions, %zu columns and items of 8 bytes", name, (size_t)width);
    PyBuffer_Release(buffer);
    return -1;
}

/* run(numbers, ids, out): numbers float64, ids int64, out float64 and contiguous; all of as many rows. */
static PyObject *program_run(PyObject *object, PyObject *args) {
    Program *self = (Program *)object;
    PyObject *given[3], *result = NULL;
    Py_buffer numbers, ids, out;
    if (!PyArg_ParseTuple(args, "OOO:run", &given[0], &given[1], &given[2])) return NULL;
    if (two_dimensions(given[0], &numbers, PyBUF_SIMPLE, "numbers", self->image->numbers) != 0) return NULL;
    if (two_dimensions(given[1], &ids, PyBUF_SIMPLE, "ids", self->image->ids) != 0) goto release_numbers;
    if (two_dimensions(given[2], &out, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS, "out", self->image->outputs) != 0) goto release_ids;
    if (numbers.shape[0] != out.shape[0] || ids.shape[0] != out.shape[0]) {
        PyErr_SetString(PyExc_ValueError, "numbers, ids and out must have as many rows");
        goto release_out;
    }
    const ptrdiff_t item = 8;
    wt_rows rows = {
        .rows = (size_t)out.shape[0],
        .numbers = numbers.buf,
        .number_row = numbers.strides[0] / item,
        .number_column = numbers.strides[1] / item,
        .ids = ids.buf,
        .id_row = ids.strides[0] / item,
        .id_column = ids.strides[1] / item,
        .out = out.buf,
    };
    if (program_compute(self, &rows, 1, ANY_NUMBERS) == 0) result = Py_NewRef(Py_None);
release_out:
    PyBuffer_Release(&out);
release_ids:
    PyBuffer_Release(&ids);
release_numbers:
    PyBuffer_Release(&numbers);
    return result;
}

static PyObject *program_bytes(PyObject *object, PyObject *unused) {
    const wt_program *image = ((Program *)object)->image;
    (void)unused;
    return PyBytes_FromStringAndSize((const char *)image, (Py_ssize_t)image->size);
}

static PyMethodDef program_methods[] = {
    {"run", program_run, METH_VARARGS, "run(numbers, ids, out): compute the outputs of rows"},
    {"bytes", program_bytes, METH_NOARGS, "bytes(): the image"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_free},
    {Py_tp_methods, program_methods},
    {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "windtunnel_native.Program",
    .basicsize = sizeof(Program),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = program_slots,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL) return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int fill_module(PyObject *module) {
    if (add_type(module, "Program", &program_spec) != 0 || add_type(module, "Scorer", &scorer_spec) != 0) return -1;
    return add_type(module, "Vocabulary", &vocabulary_spec);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill_module},
    {0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "windtunnel_native",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit_windtunnel_native(void);
PyMODINIT_FUNC PyInit_windtunnel_native(void) {
    return PyModuleDef_Init(&module);
}
