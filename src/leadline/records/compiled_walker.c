/* The walk over records, compiled: the functions of python_walker.py, with the same results and the same errors.

   The format of a record is in record.py. Nothing is believed: each byte is read within its chunk and within its record.
   Only Python's stable interface is used, from 3.11 on: one file serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

enum { INT_BYTES = 5, LONG_BYTES = 10 };                    /* of the longest varints, as in Kafka */
enum { RELEASE_BYTES = 1 << 14 };                           /* from this size on, other threads may run meanwhile */
enum { COLUMNS = 8, ROW = 9 };

enum flaw { NONE, FAILED, CUT_OFF, LONG_NUMBER, LENGTH, PARTS, HEADERS, NO_HEADER_KEY, REST };

static PyObject *corrupt_message;

typedef struct {
    const uint8_t *at, *end;                                /* of the chunk */
    int64_t left;                                           /* bytes of the record that are not read yet */
    int64_t length;                                         /* of the record, for errors */
    int64_t headers;                                        /* their count, for errors */
    PyObject *chunks;                                       /* an iterator; NULL: there is one chunk */
    Py_buffer buffer;                                       /* the chunk, if it is one of several */
    PyThreadState **released;                               /* where the thread state is while others may run */
    enum flaw flaw;
} reader;

typedef struct {
    int64_t timestamp_delta, offset_delta;
    const uint8_t *rest_at, *key_at, *value_at, *headers_at;
    int64_t key_bytes, value_bytes;
} parts;

typedef struct {
    int64_t max_timestamp, oldest, keyless, misplaced;
} summary;

/* The next chunk that is not empty. 0 if there is none. */
static int refill(reader *r)
{
    if (!r->chunks) {
        r->flaw = CUT_OFF;
        return 0;
    }
    if (*r->released)
        PyEval_RestoreThread(*r->released);
    int more = 0;
    do {
        PyBuffer_Release(&r->buffer);
        PyObject *chunk = PyIter_Next(r->chunks);
        if (!chunk) {
            r->flaw = PyErr_Occurred() ? FAILED : CUT_OFF;
            break;
        }
        if (PyObject_GetBuffer(chunk, &r->buffer, PyBUF_SIMPLE) < 0) {
            Py_DECREF(chunk);
            r->flaw = FAILED;
            break;
        }
        Py_DECREF(chunk);
        more = r->buffer.len > 0;
    } while (!more);
    if (more) {
        r->at = r->buffer.buf;
        r->end = r->at + r->buffer.len;
    }
    if (*r->released)
        *r->released = PyEval_SaveThread();
    return more;
}

static inline int next_byte(reader *r, uint8_t *byte)
{
    if (r->left <= 0) {
        r->flaw = PARTS;
        return 0;
    }
    if (r->at == r->end && !refill(r))
        return 0;
    r->left--;
    *byte = *r->at++;
    return 1;
}

static int long_varint(reader *r, int most, uint64_t *value)
{
    uint8_t byte;
    *value = 0;
    for (int n = 0; n < most; n++) {
        if (!next_byte(r, &byte))
            return 0;
        *value |= (uint64_t)(byte & 0x7F) << (7 * n);
        if (byte < 0x80)
            return 1;
    }
    r->flaw = LONG_NUMBER;
    return 0;
}

static inline int varint(reader *r, int most, int64_t *number)
{
    uint64_t value;
    if (r->left > 0 && r->at != r->end && *r->at < 0x80) {
        value = *r->at++;
        r->left--;
    } else if (!long_varint(r, most, &value))
        return 0;
    if (most == INT_BYTES) {
        uint32_t low = (uint32_t)value;
        *number = (int32_t)((low >> 1) ^ -(low & 1));
    } else
        *number = (int64_t)((value >> 1) ^ -(value & 1));
    return 1;
}

static inline int skip(reader *r, int64_t count)
{
    if (count <= 0)
        return 1;
    if (count > r->left) {
        r->flaw = PARTS;
        return 0;
    }
    r->left -= count;
    while (count > r->end - r->at) {
        count -= r->end - r->at;
        r->at = r->end;
        if (!refill(r))
            return 0;
    }
    r->at += count;
    return 1;
}

static int record_headers(reader *r, int64_t count)
{
    int64_t size;
    if (count < 0 || count > r->left) {
        r->headers = count;
        r->flaw = HEADERS;
        return 0;
    }
    while (count-- > 0) {
        if (!varint(r, INT_BYTES, &size))
            return 0;
        if (size < 0) {
            r->flaw = NO_HEADER_KEY;
            return 0;
        }
        if (!skip(r, size) || !varint(r, INT_BYTES, &size) || !skip(r, size))
            return 0;
    }
    return 1;
}

static inline int record(reader *r, parts *out)
{
    uint8_t attributes;
    int64_t headers;
    r->left = INT64_MAX;
    if (!varint(r, INT_BYTES, &r->length))
        return 0;
    if (r->length < 0) {
        r->flaw = LENGTH;
        return 0;
    }
    r->left = r->length;
    if (!next_byte(r, &attributes) || !varint(r, LONG_BYTES, &out->timestamp_delta) ||
        !varint(r, INT_BYTES, &out->offset_delta))
        return 0;
    out->rest_at = r->at;
    if (!varint(r, INT_BYTES, &out->key_bytes))
        return 0;
    out->key_at = r->at;
    if (!skip(r, out->key_bytes) || !varint(r, INT_BYTES, &out->value_bytes))
        return 0;
    out->value_at = r->at;
    if (!skip(r, out->value_bytes))
        return 0;
    out->headers_at = r->at;
    if (!varint(r, INT_BYTES, &headers) || (headers && !record_headers(r, headers)))
        return 0;
    if (r->left)
        r->flaw = PARTS;
    return !r->left;
}

static PyObject *refuse(const reader *r, int64_t number)
{
    long long n = number, length = r->length, headers = r->headers;
    switch (r->flaw) {
    case CUT_OFF:
        return PyErr_Format(corrupt_message, "the records end within record %lld", n);
    case LONG_NUMBER:
        return PyErr_Format(corrupt_message, "record %lld has a number of too many bytes", n);
    case LENGTH:
        return PyErr_Format(corrupt_message, "record %lld has a length of %lld", n, length);
    case PARTS:
        return PyErr_Format(corrupt_message, "record %lld has a length of %lld, but its parts have another", n, length);
    case HEADERS:
        return PyErr_Format(corrupt_message, "record %lld of %lld bytes has %lld headers", n, length, headers);
    case NO_HEADER_KEY:
        return PyErr_Format(corrupt_message, "record %lld has a header without a key", n);
    case REST:
        return PyErr_Format(corrupt_message, "there are bytes behind the last of %lld records", n);
    default:
        return NULL;
    }
}

/* All records of a batch. Returns how many were read. */
static int64_t summarize(reader *r, int64_t count, int64_t base_timestamp, summary *s)
{
    parts p;
    int64_t n;
    *s = (summary){-1, INT64_MAX, 0, -1};
    for (n = 0; n < count; n++) {
        if (!record(r, &p))
            return n;
        int64_t timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)p.timestamp_delta);
        if (timestamp > s->max_timestamp)
            s->max_timestamp = timestamp;
        if (timestamp != -1 && timestamp < s->oldest)
            s->oldest = timestamp;
        s->keyless += p.key_bytes < 0;
        if (p.offset_delta != n && s->misplaced < 0)
            s->misplaced = n;
    }
    if (r->at != r->end || (r->chunks && refill(r)))
        r->flaw = REST;
    else if (r->flaw == CUT_OFF)
        r->flaw = NONE;
    return n;
}

static PyObject *result(const reader *r, int64_t number, const summary *s)
{
    if (r->flaw != NONE)
        return refuse(r, number);
    return Py_BuildValue("LLLL", (long long)s->max_timestamp, (long long)s->oldest, (long long)s->keyless,
                         (long long)s->misplaced);
}

/* What a range of a buffer must be, and the numbers that follow it among the arguments. */
static int range_arguments(PyObject *const *args, Py_ssize_t given, Py_ssize_t expected, Py_buffer *buffer, int64_t *numbers)
{
    if (given != expected) {
        PyErr_Format(PyExc_TypeError, "%zd arguments instead of %zd", given, expected);
        return 0;
    }
    for (Py_ssize_t n = 1; n < given; n++) {
        numbers[n - 1] = PyLong_AsLongLong(args[n]);
        if (numbers[n - 1] == -1 && PyErr_Occurred())
            return 0;
    }
    if (PyObject_GetBuffer(args[0], buffer, PyBUF_SIMPLE) < 0)
        return 0;
    if (numbers[0] < 0 || numbers[0] > numbers[1] || numbers[1] > buffer->len) {
        PyBuffer_Release(buffer);
        PyErr_SetString(PyExc_ValueError, "the range lies outside of the buffer");
        return 0;
    }
    return 1;
}

PyDoc_STRVAR(check_doc, "check(data, start, end, count, base_timestamp): see python_walker.");
static PyObject *check(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer buffer;
    int64_t numbers[4];
    if (!range_arguments(args, given, 5, &buffer, numbers))
        return NULL;
    reader r = {.at = (const uint8_t *)buffer.buf + numbers[0], .end = (const uint8_t *)buffer.buf + numbers[1]};
    summary s;
    PyThreadState *state = r.end - r.at >= RELEASE_BYTES && numbers[2] > 64 ? PyEval_SaveThread() : NULL;
    int64_t n = summarize(&r, numbers[2], numbers[3], &s);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&buffer);
    return result(&r, n, &s);
}

PyDoc_STRVAR(check_chunks_doc, "check_chunks(chunks, count, base_timestamp): see python_walker.");
static PyObject *check_chunks(PyObject *self, PyObject *args)
{
    PyObject *iterable;
    long long count, base_timestamp;
    if (!PyArg_ParseTuple(args, "OLL", &iterable, &count, &base_timestamp))
        return NULL;
    PyThreadState *state = NULL;
    reader r = {.chunks = PyObject_GetIter(iterable), .released = &state};
    if (!r.chunks)
        return NULL;
    summary s;
    state = PyEval_SaveThread();
    int64_t n = summarize(&r, count, base_timestamp, &s);
    PyEval_RestoreThread(state);
    PyBuffer_Release(&r.buffer);
    Py_DECREF(r.chunks);
    return result(&r, n, &s);
}

PyDoc_STRVAR(rows_doc, "rows(data, start, end, count, number): see python_walker.");
static PyObject *rows(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer buffer;
    int64_t numbers[4], n;
    if (!range_arguments(args, given, 5, &buffer, numbers))
        return NULL;
    const uint8_t *base = buffer.buf;
    reader r = {.at = base + numbers[0], .end = base + numbers[1]};
    int64_t count = numbers[2], most = (numbers[1] - numbers[0]) / 7;  /* a record has seven bytes at least */
    PyObject *out = PyBytes_FromStringAndSize(NULL, (count < 0 ? 0 : count < most ? count : most) * ROW * 8);
    if (!out) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    int64_t *row = (int64_t *)PyBytes_AsString(out);
    for (n = 0; n < count; n++, row += ROW) {
        parts p;
        if (!record(&r, &p)) {
            refuse(&r, numbers[3] + n);
            Py_CLEAR(out);
            break;
        }
        row[0] = p.timestamp_delta;
        row[1] = p.offset_delta;
        row[2] = p.rest_at - base;
        row[3] = p.key_at - base;
        row[4] = p.key_bytes;
        row[5] = p.value_at - base;
        row[6] = p.value_bytes;
        row[7] = p.headers_at - base;
        row[8] = r.at - base;
    }
    PyBuffer_Release(&buffer);
    return out;
}

/* Walks all bodies into columns. Returns whether each is made of as many records as it should. */
static int fill_columns(const Py_buffer *data, const Py_buffer *bodies, int64_t *columns, int64_t rows_left)
{
    const uint8_t *base = data->buf;
    const int64_t *starts = bodies[0].buf, *ends = bodies[1].buf, *counts = bodies[2].buf, width = rows_left;
    for (Py_ssize_t n = 0; n < bodies[0].len / 8; n++) {
        if (starts[n] < 0 || starts[n] > ends[n] || ends[n] > data->len || counts[n] < 0 || counts[n] > rows_left)
            return 0;
        reader r = {.at = base + starts[n], .end = base + ends[n]};
        for (int64_t k = 0; k < counts[n]; k++, columns++) {
            parts p;
            if (!record(&r, &p))
                return 0;
            columns[0] = p.timestamp_delta;
            columns[width] = p.offset_delta;
            columns[2 * width] = p.key_at - base;
            columns[3 * width] = p.key_bytes;
            columns[4 * width] = p.value_at - base;
            columns[5 * width] = p.value_bytes;
            columns[6 * width] = p.headers_at - base;
            columns[7 * width] = r.at - base;
        }
        rows_left -= counts[n];
        if (r.at != r.end)
            return 0;
    }
    return rows_left == 0;
}

PyDoc_STRVAR(fill_doc, "fill(data, starts, ends, counts, columns): see python_walker.");
static PyObject *fill(PyObject *self, PyObject *args)
{
    PyObject *objects[5], *answer = NULL;
    Py_buffer data, bodies[3], columns;
    int held = 0;
    if (!PyArg_ParseTuple(args, "OOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4]))
        return NULL;
    if (PyObject_GetBuffer(objects[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(objects[4], &columns, PyBUF_CONTIG) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    while (held < 3 && PyObject_GetBuffer(objects[1 + held], &bodies[held], PyBUF_CONTIG_RO) == 0)
        held++;
    if (held == 3) {
        Py_ssize_t size = bodies[0].len;
        if (bodies[0].itemsize != 8 || bodies[1].itemsize != 8 || bodies[2].itemsize != 8 || columns.itemsize != 8 ||
            bodies[1].len != size || bodies[2].len != size || columns.len % (COLUMNS * 8))
            PyErr_SetString(PyExc_ValueError, "eight columns of 64 bits, and three numbers for each body");
        else {
            int plain;
            Py_BEGIN_ALLOW_THREADS
            plain = fill_columns(&data, bodies, columns.buf, columns.len / (COLUMNS * 8));
            Py_END_ALLOW_THREADS
            answer = PyBool_FromLong(plain);
        }
    }
    while (held)
        PyBuffer_Release(&bodies[--held]);
    PyBuffer_Release(&columns);
    PyBuffer_Release(&data);
    return answer;
}

static PyMethodDef methods[] = {
    {"check", (PyCFunction)(void (*)(void))check, METH_FASTCALL, check_doc},
    {"check_chunks", check_chunks, METH_VARARGS, check_chunks_doc},
    {"rows", (PyCFunction)(void (*)(void))rows, METH_FASTCALL, rows_doc},
    {"fill", fill, METH_VARARGS, fill_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "leadline.records.compiled_walker", "The walk over records, compiled.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_compiled_walker(void)
{
    PyObject *errors = PyImport_ImportModule("leadline.errors");
    if (!errors)
        return NULL;
    corrupt_message = PyObject_GetAttrString(errors, "CorruptMessage");
    Py_DECREF(errors);
    return corrupt_message ? PyModule_Create(&module) : NULL;
}
