/* The walk over records, compiled: the functions of python_walker.py, with the same results and the same errors.

   The format of a record is in record.py. Nothing is believed: each byte is read within its chunk and within its record.
   Only Python's stable interface is used, from 3.11 on: one file serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INTERFACE = 2 };                                     /* as in compiled_part.py: grows with what is offered */
enum { INT_BYTES = 5, LONG_BYTES = 10 };                    /* of the longest varints, as in Kafka */
enum { RELEASE_BYTES = 1 << 14 };                           /* from this size on, other threads may run meanwhile */
enum { COLUMNS = 8, ROW = 9, KEPT = 4 };

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

/* The last offset of each key, for compaction: slots of 24 bytes, a digest of the key (16) and the offset + 1 (8; 0:
   the slot is free). A key lies in the first free slot from where its digest points to. The slot in front of all others
   holds how many there are, and the secret of the digest, without which nobody can make two keys collide. */

typedef struct {
    uint64_t digest[2];
    uint64_t offset;                                        /* + 1; 0: free */
} slot;

typedef struct {
    uint64_t size, secret[2];
} map_head;

typedef struct {
    map_head *head;
    slot *slots;
    uint64_t count;
} offset_map;

enum { AT_ONCE = 16 };                                      /* slots that are fetched into the cache together */

static inline uint64_t rotated(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_rounds(uint64_t v[4], int count)
{
    while (count--) {
        v[0] += v[1], v[2] += v[3];
        v[1] = rotated(v[1], 13) ^ v[0], v[3] = rotated(v[3], 16) ^ v[2];
        v[0] = rotated(v[0], 32);
        v[2] += v[1], v[0] += v[3];
        v[1] = rotated(v[1], 17) ^ v[2], v[3] = rotated(v[3], 21) ^ v[0];
        v[2] = rotated(v[2], 32);
    }
}

/* SipHash-2-4 with 128 bits. On machines of another byte order it is another one, and as good. */
static inline void digest_of(const uint64_t secret[2], const uint8_t *at, uint64_t bytes, uint64_t digest[2])
{
    uint64_t word, v[4] = {0x736f6d6570736575 ^ secret[0], 0x646f72616e646f6d ^ secret[1] ^ 0xee,
                           0x6c7967656e657261 ^ secret[0], 0x7465646279746573 ^ secret[1]};
    for (uint64_t left = bytes; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    word = bytes << 56;
    for (int n = 0; n < (int)(bytes & 7); n++)
        word |= (uint64_t)at[n] << 8 * n;
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
    v[2] ^= 0xee;
    sip_rounds(v, 4);
    digest[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    sip_rounds(v, 4);
    digest[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline slot *first_slot(const offset_map *map, const uint64_t digest[2])
{
    return map->slots + ((digest[0] >> 32) * map->count >> 32);
}

/* The slot of a key, or the free one in which it would be. NULL if it is not there and none is free. */
static inline slot *slot_of(const offset_map *map, const uint64_t digest[2])
{
    slot *at = first_slot(map, digest), *end = map->slots + map->count;
    for (uint64_t n = 0; n < map->count; n++) {
        if (!at->offset || (at->digest[0] == digest[0] && at->digest[1] == digest[1]))
            return at;
        if (++at == end)
            at = map->slots;
    }
    return NULL;
}

/* A record, where it ends, and the digest of its key if it has one. */
typedef struct {
    parts p;
    const uint8_t *end;
    uint64_t digest[2];
} keyed_record;

/* Walks some records and has the slots of their keys fetched. Returns how many: fewer if there is a flaw. */
static inline int keyed_records(reader *r, const offset_map *map, keyed_record *out, int64_t count)
{
    int n, most = count < AT_ONCE ? (int)count : AT_ONCE;
    for (n = 0; n < most && record(r, &out[n].p); n++) {
        out[n].end = r->at;
        if (out[n].p.key_bytes >= 0) {
            digest_of(map->head->secret, out[n].p.key_at, out[n].p.key_bytes, out[n].digest);
            __builtin_prefetch(first_slot(map, out[n].digest));
        }
    }
    return n;
}

static int map_arguments(PyObject *args, Py_ssize_t expected, offset_map *map, Py_buffer buffers[2], int64_t *numbers)
{
    if (PyTuple_Size(args) != expected) {
        PyErr_Format(PyExc_TypeError, "%zd arguments instead of %zd", PyTuple_Size(args), expected);
        return 0;
    }
    for (Py_ssize_t n = 2; n < expected; n++) {
        numbers[n - 2] = PyLong_AsLongLong(PyTuple_GetItem(args, n));
        if (numbers[n - 2] == -1 && PyErr_Occurred())
            return 0;
    }
    if (PyObject_GetBuffer(PyTuple_GetItem(args, 0), &buffers[0], PyBUF_WRITABLE) < 0)
        return 0;
    if (PyObject_GetBuffer(PyTuple_GetItem(args, 1), &buffers[1], PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&buffers[0]);
        return 0;
    }
    if (buffers[0].len < (Py_ssize_t)(sizeof(map_head) + sizeof(slot)) || (uintptr_t)buffers[0].buf % sizeof(uint64_t)) {
        PyBuffer_Release(&buffers[0]);
        PyBuffer_Release(&buffers[1]);
        PyErr_SetString(PyExc_ValueError, "the memory for keys cannot hold one");
        return 0;
    }
    map->head = buffers[0].buf;
    map->slots = (slot *)(map->head + 1);
    map->count = (buffers[0].len - sizeof(map_head)) / sizeof(slot);
    if (map->count > UINT32_MAX)
        map->count = UINT32_MAX;
    return 1;
}

/* Notes the keys of a batch. Returns how many records it has walked. */
static int64_t learn(reader *r, const offset_map *map, int64_t count, int64_t base_offset, int64_t start, int64_t room,
                     int64_t *last, int *full)
{
    uint64_t most = room < 0 ? 0 : (uint64_t)room < map->count ? (uint64_t)room : map->count;
    keyed_record some[AT_ONCE];
    int walked = 0, expected = 0;
    int64_t n = 0;
    *last = -1;
    *full = 0;
    for (; n < count && walked == expected; n += walked) {
        expected = count - n < AT_ONCE ? (int)(count - n) : AT_ONCE;
        walked = keyed_records(r, map, some, count - n);
        for (int k = 0; k < walked; k++) {
            int64_t offset = (int64_t)((uint64_t)base_offset + (uint64_t)some[k].p.offset_delta);
            if (some[k].p.key_bytes < 0 || offset < start || offset < 0)
                continue;
            if (map->head->size >= most) {
                *full = 1;
                r->flaw = NONE;                             /* what follows does not count */
                return n;
            }
            slot *at = slot_of(map, some[k].digest);
            if (!at->offset) {
                at->digest[0] = some[k].digest[0];
                at->digest[1] = some[k].digest[1];
                map->head->size++;
            }
            at->offset = (uint64_t)offset + 1;
            *last = offset;
        }
    }
    if (r->flaw == NONE && r->at != r->end)
        r->flaw = REST;
    return n;
}

PyDoc_STRVAR(learn_keys_doc, "learn_keys(table, body, count, base_offset, start, most): see python_walker.");
static PyObject *learn_keys(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2];
    int64_t numbers[4], last, n;
    offset_map map;
    int full;
    if (!map_arguments(args, 6, &map, buffers, numbers))
        return NULL;
    reader r = {.at = buffers[1].buf, .end = (const uint8_t *)buffers[1].buf + buffers[1].len};
    Py_BEGIN_ALLOW_THREADS
    n = learn(&r, &map, numbers[0], numbers[1], numbers[2], numbers[3], &last, &full);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    if (r.flaw != NONE)
        return refuse(&r, n);
    return Py_BuildValue("LN", (long long)last, PyBool_FromLong(full));
}

typedef struct {
    int64_t count, keyless, tombstones;
    int64_t newest;                                         /* the largest timestamp delta */
} kept_records;

/* The room that the rows of a batch take, which are four numbers for each record. */
static inline size_t rows_bytes(int64_t body_bytes, int64_t count)
{
    int64_t most = body_bytes / 7;                          /* a record has seven bytes at least */
    return (size_t)(count < 0 ? 0 : count < most ? count : most) * KEPT * 8;
}

/* Walks the records of a batch and writes a row for each that stays. Returns how many it has walked. */
static int64_t keep(reader *r, const offset_map *map, int64_t count, int64_t base_offset, int64_t map_end,
                    int keep_tombstones, int64_t *row, kept_records *out)
{
    const uint8_t *base = r->at;
    keyed_record some[AT_ONCE];
    int walked = 0, expected = 0;
    int64_t n = 0;
    *out = (kept_records){0, 0, 0, 0};
    for (; n < count && walked == expected; n += walked) {
        expected = count - n < AT_ONCE ? (int)(count - n) : AT_ONCE;
        walked = keyed_records(r, map, some, count - n);
        for (int k = 0; k < walked; k++) {
            const parts *p = &some[k].p;
            int64_t offset = (int64_t)((uint64_t)base_offset + (uint64_t)p->offset_delta);
            if (offset <= map_end) {
                if (p->key_bytes < 0) {
                    out->keyless++;
                    continue;
                }
                if (p->value_bytes < 0 && !keep_tombstones)
                    continue;
                const slot *at = slot_of(map, some[k].digest);
                if (at && at->offset && offset < (int64_t)(at->offset - 1))
                    continue;
            }
            row[0] = p->timestamp_delta;
            row[1] = p->offset_delta;
            row[2] = p->rest_at - base;
            row[3] = some[k].end - base;
            row += KEPT;
            out->tombstones += p->value_bytes < 0;
            if (!out->count++ || p->timestamp_delta > out->newest)
                out->newest = p->timestamp_delta;
        }
    }
    if (r->flaw == NONE && r->at != r->end)
        r->flaw = REST;
    return n;
}

PyDoc_STRVAR(retained_doc, "retained(table, body, count, base_offset, map_end, keep_tombstones): see python_walker.");
static PyObject *retained(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2];
    int64_t numbers[4], n;
    offset_map map;
    if (!map_arguments(args, 6, &map, buffers, numbers))
        return NULL;
    int64_t *rows = PyMem_Malloc(rows_bytes(buffers[1].len, numbers[0]));
    PyObject *answer = NULL;
    if (rows) {
        reader r = {.at = buffers[1].buf, .end = (const uint8_t *)buffers[1].buf + buffers[1].len};
        kept_records kept;
        Py_BEGIN_ALLOW_THREADS
        n = keep(&r, &map, numbers[0], numbers[1], numbers[2], numbers[3] != 0, rows, &kept);
        Py_END_ALLOW_THREADS
        if (r.flaw != NONE)
            refuse(&r, n);
        else
            answer = Py_BuildValue("y#LLLL", (const char *)rows, (Py_ssize_t)(kept.count * KEPT * 8),
                                   (long long)kept.count, (long long)kept.keyless, (long long)kept.tombstones,
                                   (long long)kept.newest);
        PyMem_Free(rows);
    } else
        PyErr_NoMemory();
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    return answer;
}

enum { FRONT = INT_BYTES + 1 + LONG_BYTES + INT_BYTES };    /* the most that precedes the key of a record */

static inline uint8_t *put_varint(uint8_t *at, int64_t number)
{
    uint64_t value = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    for (; value > 0x7F; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

/* The bytes that kept records take, at most. -1 if a row lies outside of the body. */
static int64_t joined_bytes(const int64_t *row, int64_t count, int64_t body_bytes)
{
    int64_t size = 0;
    for (; count--; row += KEPT) {
        if (row[2] < 0 || row[2] > row[3] || row[3] > body_bytes)
            return -1;
        size += row[3] - row[2] + FRONT;
    }
    return size;
}

static uint8_t *join(uint8_t *at, const uint8_t *body, const int64_t *row, int64_t count, int64_t shift, int is_stamped)
{
    for (; count--; row += KEPT) {
        uint8_t front[FRONT], *end = front;
        int64_t rest = row[3] - row[2];
        *end++ = 0;                                         /* attributes */
        end = put_varint(end, (int64_t)((is_stamped ? 0 : (uint64_t)row[0]) + (uint64_t)shift));
        end = put_varint(end, row[1]);
        at = put_varint(at, end - front + rest);
        memcpy(at, front, end - front);
        at += end - front;
        memcpy(at, body + row[2], rest);
        at += rest;
    }
    return at;
}

PyDoc_STRVAR(joined_doc, "joined(body, rows, shift, is_stamped): see python_walker.");
static PyObject *joined(PyObject *self, PyObject *args)
{
    PyObject *objects[2], *answer = NULL;
    Py_buffer body, rows;
    long long shift;
    int is_stamped;
    if (!PyArg_ParseTuple(args, "OOLp", &objects[0], &objects[1], &shift, &is_stamped) ||
        PyObject_GetBuffer(objects[0], &body, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(objects[1], &rows, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&body);
        return NULL;
    }
    int64_t count = rows.len / 8 / KEPT, size = joined_bytes(rows.buf, count, body.len);
    uint8_t *out = size < 0 ? NULL : PyMem_Malloc(size);
    if (out) {
        uint8_t *end = join(out, body.buf, rows.buf, count, shift, is_stamped);
        answer = PyBytes_FromStringAndSize((char *)out, end - out);
        PyMem_Free(out);
    } else if (size < 0)
        PyErr_SetString(PyExc_ValueError, "a row lies outside of the buffer");
    else
        PyErr_NoMemory();
    PyBuffer_Release(&rows);
    PyBuffer_Release(&body);
    return answer;
}

/* CRC-32C. Where the processor has an instruction for it, three parts of the data are taken at the same time, since the
   instruction needs three cycles. Multiplied by x^n, the CRC of a part is that of the part and n zero bits behind it. */

static uint32_t crc_table[8][256];
static int has_crc_instruction;

#define POLYNOMIAL 0x82F63B78u

static uint32_t multiplied(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int n = 0; n < 32; n++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = (b >> 1) ^ (POLYNOMIAL & -(b & 1));
    }
    return product;
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = crc ^ (at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
              crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^
              crc_table[0][at[7]];
    }
    while (size--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at++) & 255];
    return crc;
}

enum { STEPS = 3 };
static const size_t part_bytes[STEPS] = {4096, 1024, 256};
static uint32_t part_power[STEPS];                          /* x^(8 * part_bytes) */

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t a = crc, word[3];
    for (int step = 0; step < STEPS; step++)
        for (size_t part = part_bytes[step]; size >= 3 * part; size -= 3 * part, at += 3 * part) {
            uint64_t b = 0, c = 0;
            for (size_t n = 0; n < part; n += 8) {
                memcpy(&word[0], at + n, 8);
                memcpy(&word[1], at + part + n, 8);
                memcpy(&word[2], at + 2 * part + n, 8);
                a = __builtin_ia32_crc32di(a, word[0]);
                b = __builtin_ia32_crc32di(b, word[1]);
                c = __builtin_ia32_crc32di(c, word[2]);
            }
            a = multiplied(part_power[step], (uint32_t)a) ^ b;
            a = multiplied(part_power[step], (uint32_t)a) ^ c;
        }
    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&word[0], at, 8);
        a = __builtin_ia32_crc32di(a, word[0]);
    }
    crc = (uint32_t)a;
    while (size--)
        crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}
#else
#define crc_by_instruction crc_by_table
#endif

static inline uint32_t crc_of(const uint8_t *at, size_t size)
{
    return ~(has_crc_instruction ? crc_by_instruction(~0u, at, size) : crc_by_table(~0u, at, size));
}

static void prepare_crc(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
        crc_table[0][n] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int n = 0; n < 256; n++)
            crc_table[k][n] = crc_table[k - 1][n] >> 8 ^ crc_table[0][crc_table[k - 1][n] & 255];
    for (int step = 0; step < STEPS; step++) {
        uint32_t power = 1u << 30;                          /* x^1: the lowest power is the highest bit */
        for (size_t bits = 1; bits < 8 * part_bytes[step]; bits *= 2)
            power = multiplied(power, power);
        part_power[step] = power;
    }
#ifdef __x86_64__
    __builtin_cpu_init();
    has_crc_instruction = __builtin_cpu_supports("sse4.2") != 0;
#endif
}

PyDoc_STRVAR(crc32c_doc, "crc32c(data): the checksum of batches.");
static PyObject *crc32c(PyObject *self, PyObject *object)
{
    Py_buffer data;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyThreadState *state = data.len >= RELEASE_BYTES ? PyEval_SaveThread() : NULL;
    uint32_t crc = crc_of(data.buf, data.len);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

PyDoc_STRVAR(crc32c_by_table_doc, "crc32c_by_table(data): the same without the processor's instruction.");
static PyObject *crc32c_by_table(PyObject *self, PyObject *object)
{
    Py_buffer data;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t crc = ~crc_by_table(~0u, data.buf, data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

/* Batches. The format of a header is in batch.py. */

enum { HEADER_BYTES = 61, LENGTH_END = 12, CRC_AT = 17, ATTRIBUTES_AT = 21 };
enum { CODEC = 7, LOG_APPEND_TIME = 8, IN_TRANSACTION = 16 | 32, DELETE_HORIZON = 64, KNOWN_ATTRIBUTES = 127 };

typedef struct {
    const uint8_t *at, *end;
    int64_t base_offset, last_offset, base_timestamp, max_timestamp, producer_id;
    int32_t length, epoch, delta, sequence, count;
    uint32_t crc;
    int16_t attributes, producer_epoch;
} batch;

static inline uint64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | *at++;
    return value;
}

static inline void put_big_endian(uint8_t *at, uint64_t value, int bytes)
{
    while (bytes--) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

/* Reads a header. 0 unless it is that of a batch of format 2 which ends within the data. */
static inline int read_batch(const uint8_t *at, const uint8_t *end, batch *b)
{
    if (end - at < HEADER_BYTES || at[16] != 2)
        return 0;
    b->at = at;
    b->length = (int32_t)big_endian(at + 8, 4);
    if (b->length < HEADER_BYTES - LENGTH_END || b->length > end - at - LENGTH_END)
        return 0;
    b->end = at + LENGTH_END + b->length;
    b->base_offset = (int64_t)big_endian(at, 8);
    b->epoch = (int32_t)big_endian(at + 12, 4);
    b->crc = (uint32_t)big_endian(at + CRC_AT, 4);
    b->attributes = (int16_t)big_endian(at + ATTRIBUTES_AT, 2);
    b->delta = (int32_t)big_endian(at + 23, 4);
    b->base_timestamp = (int64_t)big_endian(at + 27, 8);
    b->max_timestamp = (int64_t)big_endian(at + 35, 8);
    b->producer_id = (int64_t)big_endian(at + 43, 8);
    b->producer_epoch = (int16_t)big_endian(at + 51, 2);
    b->sequence = (int32_t)big_endian(at + 53, 4);
    b->count = (int32_t)big_endian(at + 57, 4);
    b->last_offset = (int64_t)((uint64_t)b->base_offset + (uint64_t)(int64_t)b->delta);
    return 1;
}

static inline int has_right_crc(const batch *b)
{
    return crc_of(b->at + ATTRIBUTES_AT, b->end - b->at - ATTRIBUTES_AT) == b->crc;
}

/* Whether compaction needs nothing but the records of a batch: neither transactions nor a codec. */
static inline int is_plain(const batch *b)
{
    return !(b->attributes & (CODEC | IN_TRANSACTION)) && b->count >= 0 && b->base_offset >= 0;
}

PyDoc_STRVAR(whole_batches_doc, "whole_batches(data): see python_walker.");
static PyObject *whole_batches(PyObject *self, PyObject *object)
{
    Py_buffer data;
    batch b;
    int is_damaged = 0;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = data.buf, *end = at + data.len;
    Py_BEGIN_ALLOW_THREADS
    for (; read_batch(at, end, &b); at = b.end)
        if (!has_right_crc(&b)) {
            is_damaged = 1;
            break;
        }
    Py_END_ALLOW_THREADS
    Py_ssize_t whole = at - (const uint8_t *)data.buf;
    PyBuffer_Release(&data);
    return Py_BuildValue("nN", whole, PyBool_FromLong(is_damaged));
}

PyDoc_STRVAR(learn_plain_doc, "learn_plain(table, data, at, start, most): see python_walker.");
static PyObject *learn_plain(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2];
    int64_t numbers[3], last = -1;
    offset_map map;
    batch b;
    int full = 0;
    if (!map_arguments(args, 5, &map, buffers, numbers))
        return NULL;
    const uint8_t *base = buffers[1].buf, *end = base + buffers[1].len;
    const uint8_t *at = numbers[0] < 0 || numbers[0] > buffers[1].len ? end : base + numbers[0];
    Py_BEGIN_ALLOW_THREADS
    for (; read_batch(at, end, &b) && is_plain(&b); at = b.end) {
        reader r = {.at = at + HEADER_BYTES, .end = b.end};
        int64_t learnt;
        learn(&r, &map, b.count, b.base_offset, numbers[1], numbers[2], &learnt, &full);
        if (learnt > last)
            last = learnt;
        if (full || r.flaw != NONE)
            break;
        if (b.last_offset >= numbers[1] && b.last_offset > last)
            last = b.last_offset;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    return Py_BuildValue("nLN", (Py_ssize_t)(at - base), (long long)last, PyBool_FromLong(full));
}

/* Memory that grows. */
typedef struct {
    uint8_t *memory;
    size_t room;
} growing;

static int has_room(growing *g, size_t bytes)
{
    if (bytes > g->room) {
        size_t room = bytes + bytes / 2;
        uint8_t *memory = realloc(g->memory, room);
        if (!memory)
            return 0;
        g->memory = memory;
        g->room = room;
    }
    return 1;
}

typedef struct {
    int64_t last_offset, max_timestamp, timestamp_offset, read, written, keyless;
    int is_whole;                                           /* the last batch, which stays as it is */
} cleaned;

/* What compaction leaves of a batch with this body, behind the `used` bytes of the output. Returns the new count of
   these; -1 if the batch needs more than its records to decide, or is flawed; -2 if there is no memory. */
static int64_t clean(const batch *b, const uint8_t *body, int64_t body_bytes, const offset_map *map,
                     const int64_t *numbers, growing *out, int64_t used, growing *rows, cleaned *c)
{
    int64_t map_end = numbers[1], now_ms = numbers[2], horizon_ms = numbers[3];
    int has_horizon = b->attributes & DELETE_HORIZON, is_stamped = b->attributes & LOG_APPEND_TIME;
    kept_records kept;
    if (!has_room(rows, rows_bytes(body_bytes, b->count)))
        return -2;
    int64_t *row = (int64_t *)rows->memory;
    reader r = {.at = body, .end = body + body_bytes};
    keep(&r, map, b->count, b->base_offset, map_end, !has_horizon || b->base_timestamp > now_ms, row, &kept);
    if (r.flaw != NONE || (!kept.count && b->producer_id >= 0))
        return -1;
    c->read += b->count;
    c->written += kept.count;
    c->keyless += kept.keyless;
    if (!kept.count)
        return used;
    int64_t last_offset = b->last_offset, max_timestamp = b->max_timestamp, size = b->end - b->at;
    int set_horizon = !has_horizon && kept.tombstones;
    c->is_whole = kept.count == b->count && !set_horizon;
    if (c->is_whole) {
        if (!has_room(out, used + size))
            return -2;
        memcpy(out->memory + used, b->at, size);
    } else {
        if (!has_room(out, used + HEADER_BYTES + joined_bytes(row, kept.count, body_bytes)))
            return -2;
        uint64_t old_base = is_stamped ? b->max_timestamp : b->base_timestamp, new_base = b->base_timestamp;
        if (set_horizon)
            new_base = horizon_ms;
        else if (!has_horizon)
            new_base = is_stamped ? old_base : old_base + (uint64_t)row[0];
        uint8_t *head = out->memory + used, *end;
        end = join(head + HEADER_BYTES, body, row, kept.count, (int64_t)(old_base - new_base), is_stamped);
        size = end - head;
        if (!is_stamped)
            max_timestamp = (int64_t)((uint64_t)b->base_timestamp + (uint64_t)kept.newest);
        last_offset = b->base_offset + row[(kept.count - 1) * KEPT + 1];
        memcpy(head, b->at, HEADER_BYTES);
        put_big_endian(head + 8, size - LENGTH_END, 4);
        put_big_endian(head + ATTRIBUTES_AT, (b->attributes | (set_horizon ? DELETE_HORIZON : 0)) & KNOWN_ATTRIBUTES, 2);
        put_big_endian(head + 27, new_base, 8);
        put_big_endian(head + 35, (uint64_t)max_timestamp, 8);
        put_big_endian(head + 57, (uint64_t)kept.count, 4);
        put_big_endian(head + CRC_AT, crc_of(head + ATTRIBUTES_AT, size - ATTRIBUTES_AT), 4);
    }
    if (last_offset > c->last_offset)
        c->last_offset = last_offset;
    if (max_timestamp > c->max_timestamp) {
        c->max_timestamp = max_timestamp;
        c->timestamp_offset = b->last_offset;
    }
    return used + size;
}

PyDoc_STRVAR(clean_plain_doc, "clean_plain(table, data, at, map_end, now_ms, horizon_ms, most_bytes): see python_walker.");
static PyObject *clean_plain(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2];
    int64_t numbers[5], used = 0;
    offset_map map;
    batch b;
    growing out = {NULL, 0}, rows = {NULL, 0};
    cleaned c = {-1, -1, -1, 0, 0, 0, 0};
    if (!map_arguments(args, 7, &map, buffers, numbers))
        return NULL;
    const uint8_t *base = buffers[1].buf, *end = base + buffers[1].len;
    const uint8_t *at = numbers[0] < 0 || numbers[0] > buffers[1].len ? end : base + numbers[0];
    int64_t next = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; used <= numbers[4] && read_batch(at, end, &b) && is_plain(&b); at = b.end) {
        next = clean(&b, at + HEADER_BYTES, b.end - at - HEADER_BYTES, &map, numbers, &out, used, &rows, &c);
        if (next < 0)
            break;
        used = next;
    }
    Py_END_ALLOW_THREADS
    PyObject *answer = NULL;
    if (next == -2)
        PyErr_NoMemory();
    else
        answer = Py_BuildValue("ny#LLLLLL", (Py_ssize_t)(at - base), out.memory ? (char *)out.memory : "", (Py_ssize_t)used,
                               (long long)c.last_offset, (long long)c.max_timestamp, (long long)c.timestamp_offset,
                               (long long)c.read, (long long)c.written, (long long)c.keyless);
    free(out.memory);
    free(rows.memory);
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    return answer;
}

PyDoc_STRVAR(clean_packed_doc,
             "clean_packed(table, batch, body, map_end, now_ms, horizon_ms): see python_walker.");
static PyObject *clean_packed(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2], body;
    int64_t numbers[4] = {0}, used = -1;
    offset_map map;
    batch b;
    growing out = {NULL, 0}, rows = {NULL, 0};
    cleaned c = {-1, -1, -1, 0, 0, 0, 0};
    if (PyTuple_Size(args) != 6 || PyObject_GetBuffer(PyTuple_GetItem(args, 2), &body, PyBUF_SIMPLE) < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "six arguments");
    PyObject *others = Py_BuildValue("OOOOO", PyTuple_GetItem(args, 0), PyTuple_GetItem(args, 1), PyTuple_GetItem(args, 3),
                                     PyTuple_GetItem(args, 4), PyTuple_GetItem(args, 5));
    if (!others || !map_arguments(others, 5, &map, buffers, numbers + 1)) {
        Py_XDECREF(others);
        PyBuffer_Release(&body);
        return NULL;
    }
    Py_DECREF(others);
    const uint8_t *at = buffers[1].buf;
    if (read_batch(at, at + buffers[1].len, &b) && !(b.attributes & IN_TRANSACTION) && b.count >= 0 && b.base_offset >= 0) {
        Py_BEGIN_ALLOW_THREADS
        used = clean(&b, body.buf, body.len, &map, numbers, &out, 0, &rows, &c);
        Py_END_ALLOW_THREADS
    }
    PyObject *answer = NULL;
    if (used == -2)
        PyErr_NoMemory();
    else if (used == -1)
        answer = Py_NewRef(Py_None);
    else
        answer = Py_BuildValue("y#NLLLLL", out.memory ? (char *)out.memory : "", (Py_ssize_t)(c.is_whole ? 0 : used),
                               PyBool_FromLong(c.is_whole), (long long)c.last_offset, (long long)c.max_timestamp,
                               (long long)c.read, (long long)c.written, (long long)c.keyless);
    free(out.memory);
    free(rows.memory);
    PyBuffer_Release(&body);
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    return answer;
}

/* The scan of recovery: see segment_scan.py. */

enum { PRODUCERS = 256, BATCHES_KEPT = 5, PRODUCER_NUMBERS = 3 + 4 * BATCHES_KEPT };

typedef struct {
    int64_t at, present, next_offset, newest, newest_offset, indexed_time, index_behind;   /* change */
    int64_t epoch, base, last_offset, interval;
} scan_state;

typedef struct {
    int64_t id, epoch, count;                               /* of batches since the last look */
    struct {
        int64_t sequence, last_offset, delta, timestamp;
    } batches[BATCHES_KEPT];                                /* the last ones, number n at n % BATCHES_KEPT */
} scanned_producer;

static int put_entry(growing *g, size_t *used, uint64_t first, int first_bytes, uint64_t second)
{
    if (!has_room(g, *used + first_bytes + 4))
        return 0;
    put_big_endian(g->memory + *used, first, first_bytes);
    put_big_endian(g->memory + *used + first_bytes, second, 4);
    *used += first_bytes + 4;
    return 1;
}

PyDoc_STRVAR(scan_usual_doc, "scan_usual(data, state, producers, ignore_crc): see python_walker.");
static PyObject *scan_usual(PyObject *self, PyObject *args)
{
    PyObject *objects[3], *answer = NULL;
    Py_buffer buffers[3];
    int ignore_crc, held = 0, has_memory = 1;
    if (!PyArg_ParseTuple(args, "OOOp", &objects[0], &objects[1], &objects[2], &ignore_crc))
        return NULL;
    while (held < 3 && PyObject_GetBuffer(objects[held], &buffers[held], held ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0)
        held++;
    if (held < 3)
        goto release;
    if (buffers[1].len != sizeof(scan_state) || buffers[2].len != sizeof(scanned_producer) * PRODUCERS) {
        PyErr_SetString(PyExc_ValueError, "the state of a scan has another size");
        goto release;
    }
    scan_state *s = buffers[1].buf;
    scanned_producer *producers = buffers[2].buf;
    const uint8_t *base = buffers[0].buf;
    if (s->at < 0 || s->at > s->present || s->present > buffers[0].len) {
        PyErr_SetString(PyExc_ValueError, "the range lies outside of the buffer");
        goto release;
    }
    growing offsets = {NULL, 0}, times = {NULL, 0};
    size_t offsets_used = 0, times_used = 0;
    batch b;
    Py_BEGIN_ALLOW_THREADS
    while (has_memory && read_batch(base + s->at, base + s->present, &b)) {
        if (b.base_offset < s->next_offset || b.base_offset > s->last_offset || b.delta < 0 ||
            b.delta > s->last_offset - b.base_offset || b.epoch > s->epoch)
            break;
        scanned_producer *producer = producers + (b.producer_id & (PRODUCERS - 1));
        if (b.producer_id >= 0 && (b.attributes & IN_TRANSACTION || producer->id != b.producer_id ||
                                   producer->epoch != b.producer_epoch))
            break;
        if (!ignore_crc && !has_right_crc(&b))
            break;
        if (b.producer_id >= 0) {
            int n = producer->count++ % BATCHES_KEPT;
            producer->batches[n].sequence = b.sequence;
            producer->batches[n].last_offset = b.last_offset;
            producer->batches[n].delta = b.delta;
            producer->batches[n].timestamp = b.max_timestamp;
        }
        if (b.max_timestamp > s->newest) {
            s->newest = b.max_timestamp;
            s->newest_offset = b.last_offset;
        }
        if (s->at > s->index_behind) {
            has_memory = put_entry(&offsets, &offsets_used, (uint64_t)(b.last_offset - s->base), 4, (uint64_t)s->at);
            if (has_memory && s->newest > s->indexed_time) {
                uint64_t relative = (uint64_t)(s->newest_offset - s->base);
                has_memory = put_entry(&times, &times_used, (uint64_t)s->newest, 8, relative);
                s->indexed_time = s->newest;
            }
            s->index_behind = s->at + s->interval;
        }
        s->next_offset = b.last_offset + 1;
        s->at = b.end - base;
    }
    Py_END_ALLOW_THREADS
    if (has_memory)
        answer = Py_BuildValue("y#y#", offsets.memory ? (char *)offsets.memory : "", (Py_ssize_t)offsets_used,
                               times.memory ? (char *)times.memory : "", (Py_ssize_t)times_used);
    else
        PyErr_NoMemory();
    free(offsets.memory);
    free(times.memory);
release:
    while (held)
        PyBuffer_Release(&buffers[--held]);
    return answer;
}

static PyMethodDef methods[] = {
    {"check", (PyCFunction)(void (*)(void))check, METH_FASTCALL, check_doc},
    {"check_chunks", check_chunks, METH_VARARGS, check_chunks_doc},
    {"rows", (PyCFunction)(void (*)(void))rows, METH_FASTCALL, rows_doc},
    {"fill", fill, METH_VARARGS, fill_doc},
    {"learn_keys", learn_keys, METH_VARARGS, learn_keys_doc},
    {"retained", retained, METH_VARARGS, retained_doc},
    {"joined", joined, METH_VARARGS, joined_doc},
    {"whole_batches", whole_batches, METH_O, whole_batches_doc},
    {"learn_plain", learn_plain, METH_VARARGS, learn_plain_doc},
    {"clean_plain", clean_plain, METH_VARARGS, clean_plain_doc},
    {"clean_packed", clean_packed, METH_VARARGS, clean_packed_doc},
    {"scan_usual", scan_usual, METH_VARARGS, scan_usual_doc},
    {"crc32c", crc32c, METH_O, crc32c_doc},
    {"crc32c_by_table", crc32c_by_table, METH_O, crc32c_by_table_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "leadline.records.compiled_walker", "The walk over records, compiled.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_compiled_walker(void)
{
    prepare_crc();
    PyObject *errors = PyImport_ImportModule("leadline.errors");
    if (!errors)
        return NULL;
    corrupt_message = PyObject_GetAttrString(errors, "CorruptMessage");
    Py_DECREF(errors);
    PyObject *created = corrupt_message ? PyModule_Create(&module) : NULL;
    if (created) {
        PyModule_AddIntConstant(created, "HAS_CRC_INSTRUCTION", has_crc_instruction);
        PyModule_AddIntConstant(created, "INTERFACE", INTERFACE);
    }
    return created;
}
