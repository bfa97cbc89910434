/* The walk over records, compiled: the functions of python_walker.py, with the same results and the same errors.

   The format of a record is in record.py. Nothing is believed: each byte is read within its chunk and within its record.
   Only Python's stable interface is used, from 3.11 on: one file serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

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

/* At the end of a batch: whether anything follows its last record, or a record is no record. */
static int is_flawed(reader *r, int64_t number)
{
    if (r->flaw == NONE && r->at != r->end)
        r->flaw = REST;
    if (r->flaw == NONE)
        return 0;
    refuse(r, number);
    return 1;
}

PyDoc_STRVAR(learn_keys_doc, "learn_keys(table, body, count, base_offset, start, most): see python_walker.");
static PyObject *learn_keys(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2];
    int64_t numbers[4], last = -1, n = 0;
    offset_map map;
    if (!map_arguments(args, 6, &map, buffers, numbers))
        return NULL;
    int64_t count = numbers[0], base_offset = numbers[1], start = numbers[2] < 0 ? 0 : numbers[2];
    uint64_t most = numbers[3] < 0 ? 0 : (uint64_t)numbers[3] < map.count ? (uint64_t)numbers[3] : map.count;
    reader r = {.at = buffers[1].buf, .end = (const uint8_t *)buffers[1].buf + buffers[1].len};
    keyed_record some[AT_ONCE];
    int full = 0, walked = 0, expected = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; n < count && !full && walked == expected; n += walked) {
        expected = count - n < AT_ONCE ? (int)(count - n) : AT_ONCE;
        walked = keyed_records(&r, &map, some, count - n);
        for (int k = 0; k < walked; k++) {
            int64_t offset = (int64_t)((uint64_t)base_offset + (uint64_t)some[k].p.offset_delta);
            if (some[k].p.key_bytes < 0 || offset < start)
                continue;
            if (map.head->size >= most) {
                full = 1;
                break;
            }
            slot *at = slot_of(&map, some[k].digest);
            if (!at->offset) {
                at->digest[0] = some[k].digest[0];
                at->digest[1] = some[k].digest[1];
                map.head->size++;
            }
            at->offset = (uint64_t)offset + 1;
            last = offset;
        }
    }
    Py_END_ALLOW_THREADS
    PyObject *answer = NULL;
    if (full || !is_flawed(&r, n))
        answer = Py_BuildValue("LN", (long long)last, PyBool_FromLong(full));
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    return answer;
}

PyDoc_STRVAR(retained_doc, "retained(table, body, count, base_offset, map_end, keep_tombstones): see python_walker.");
static PyObject *retained(PyObject *self, PyObject *args)
{
    Py_buffer buffers[2];
    int64_t numbers[4], n = 0, keyless = 0, tombstones = 0, kept = 0, newest = 0;
    offset_map map;
    if (!map_arguments(args, 6, &map, buffers, numbers))
        return NULL;
    int64_t count = numbers[0] < 0 ? 0 : numbers[0], base_offset = numbers[1], map_end = numbers[2];
    const uint8_t *base = buffers[1].buf;
    int64_t most = buffers[1].len / 7;                      /* a record has seven bytes at least */
    int64_t *rows = PyMem_Malloc((count < most ? count : most) * KEPT * 8), *row = rows;
    PyObject *answer = NULL;
    if (!rows) {
        PyErr_NoMemory();
        goto release;
    }
    reader r = {.at = base, .end = base + buffers[1].len};
    keyed_record some[AT_ONCE];
    int walked = 0, expected = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; n < count && walked == expected; n += walked) {
        expected = count - n < AT_ONCE ? (int)(count - n) : AT_ONCE;
        walked = keyed_records(&r, &map, some, count - n);
        for (int k = 0; k < walked; k++) {
            const parts *p = &some[k].p;
            int64_t offset = (int64_t)((uint64_t)base_offset + (uint64_t)p->offset_delta);
            if (offset <= map_end) {
                if (p->key_bytes < 0) {
                    keyless++;
                    continue;
                }
                if (p->value_bytes < 0 && !numbers[3])
                    continue;
                const slot *at = slot_of(&map, some[k].digest);
                if (at && at->offset && offset < (int64_t)(at->offset - 1))
                    continue;
            }
            row[0] = p->timestamp_delta;
            row[1] = p->offset_delta;
            row[2] = p->rest_at - base;
            row[3] = some[k].end - base;
            row += KEPT;
            tombstones += p->value_bytes < 0;
            if (!kept++ || p->timestamp_delta > newest)
                newest = p->timestamp_delta;
        }
    }
    Py_END_ALLOW_THREADS
    if (!is_flawed(&r, n))
        answer = Py_BuildValue("y#LLLL", (const char *)rows, (Py_ssize_t)((char *)row - (char *)rows), (long long)kept,
                               (long long)keyless, (long long)tombstones, (long long)newest);
    PyMem_Free(rows);
release:
    PyBuffer_Release(&buffers[0]);
    PyBuffer_Release(&buffers[1]);
    return answer;
}

static inline uint8_t *put_varint(uint8_t *at, int64_t number)
{
    uint64_t value = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    for (; value > 0x7F; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

PyDoc_STRVAR(joined_doc, "joined(body, rows, shift, is_stamped): see python_walker.");
static PyObject *joined(PyObject *self, PyObject *args)
{
    enum { FRONT = INT_BYTES + 1 + LONG_BYTES + INT_BYTES };
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
    const int64_t *row = rows.buf, *behind = row + rows.len / 8 / KEPT * KEPT;
    uint8_t *out = NULL, *at;
    Py_ssize_t size = 0;
    for (const int64_t *next = row; next < behind; next += KEPT) {
        if (next[2] < 0 || next[2] > next[3] || next[3] > body.len) {
            PyErr_SetString(PyExc_ValueError, "a row lies outside of the buffer");
            goto release;
        }
        size += next[3] - next[2] + FRONT;
    }
    at = out = PyMem_Malloc(size);
    if (!out) {
        PyErr_NoMemory();
        goto release;
    }
    for (; row < behind; row += KEPT) {
        uint8_t front[FRONT], *end = front;
        int64_t rest = row[3] - row[2];
        *end++ = 0;                                         /* attributes */
        end = put_varint(end, (int64_t)((is_stamped ? 0 : (uint64_t)row[0]) + (uint64_t)shift));
        end = put_varint(end, row[1]);
        at = put_varint(at, end - front + rest);
        memcpy(at, front, end - front);
        at += end - front;
        memcpy(at, (const uint8_t *)body.buf + row[2], rest);
        at += rest;
    }
    answer = PyBytes_FromStringAndSize((char *)out, at - out);
    PyMem_Free(out);
release:
    PyBuffer_Release(&rows);
    PyBuffer_Release(&body);
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
