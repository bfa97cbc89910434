# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where the parts of records lie: what places.py does by columns, record by record and compiled.

Every byte that is looked at lies before the end of its record, and every record before the end of its body.
"""

from libc.stdint cimport int64_t, uint64_t, uint8_t


cdef inline int64_t _varint(const uint8_t* data, int64_t* at, int64_t end) noexcept nogil:
    """The number at a position, which moves behind it; -1 as position for one of more than nine bytes or cut off."""
    cdef uint64_t value = 0
    cdef int64_t position = at[0]
    cdef int shift = 0
    cdef uint8_t byte
    while position < end and shift < 63:
        byte = data[position]
        position += 1
        value |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            at[0] = position
            return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
        shift += 7
    at[0] = -1
    return 0


cdef inline int64_t _record(const uint8_t* data, int64_t at, int64_t end, int64_t* out, int64_t rows) noexcept nogil:
    """Fill one row of each column; hands back where the record ends, -1 if it is not plain."""
    cdef int64_t size = _varint(data, &at, end)
    if at < 0 or size < 1 or size > end - at:
        return -1
    end = at + size
    at += 1
    out[0] = _varint(data, &at, end)
    if at < 0:
        return -1
    out[rows] = _varint(data, &at, end)
    if at < 0:
        return -1
    size = _varint(data, &at, end)
    if at < 0 or size > end - at:
        return -1
    out[2 * rows] = at
    out[3 * rows] = size
    if size > 0:
        at += size
    size = _varint(data, &at, end)
    if at < 0 or size >= end - at:
        return -1
    out[4 * rows] = at
    out[5 * rows] = size
    if size > 0:
        at += size
    if at >= end:
        return -1
    out[6 * rows] = at
    out[7 * rows] = end
    return end


def fill(
    const uint8_t[::1] data,
    const int64_t[::1] begins,
    const int64_t[::1] ends,
    const int64_t[::1] counts,
    int64_t[:, ::1] columns,
):
    """Fill the eight columns, a row for each record. False if any of them is unusual, or wrong."""
    cdef int64_t rows = columns.shape[1], row = 0, at, end
    cdef Py_ssize_t n
    cdef int64_t k
    if columns.shape[0] != 8 or not len(begins) == len(ends) == len(counts):
        raise ValueError("eight columns, and three numbers for each body")
    with nogil:
        for n in range(begins.shape[0]):
            at, end = begins[n], ends[n]
            if at < 0 or at > end or end > data.shape[0] or counts[n] < 0 or counts[n] > rows - row:
                row = -1
                break
            for k in range(counts[n]):
                at = _record(&data[0], at, end, &columns[0, row], rows)
                if at < 0:
                    break
                row += 1
            if at != end:
                row = -1
                break
    return row == rows
