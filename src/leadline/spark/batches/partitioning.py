"""The partition of a record: from its column `partition`, from its key, or any.

A key has the partition that Kafka's Java clients choose, by murmur2 of its bytes. So all records of a key are in one
partition, whichever client wrote them. The hashes of all keys of one length are computed together.

Pure: keys in, numbers out.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

SEED, M, R = np.uint32(0x9747B28C), np.uint32(0x5BD1E995), np.uint32(24)


def partitions_of_keys(keys: pa.Array, count: int) -> Ints:
    """The partition of each key; -1 for a record without a key."""
    lengths = pc.fill_null(pc.binary_length(keys), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    partitions = np.full(len(keys), -1, np.int64)
    for length in np.unique(lengths[lengths >= 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        present_keys = keys.take(pa.array(rows))  # in it, the bytes of the keys follow each other without gaps
        flat = np.frombuffer(present_keys.buffers()[2] or b"", np.uint8, count=len(rows) * length)
        hashes = _murmur2(flat.reshape(len(rows), length))
        partitions[rows] = (hashes & np.uint32(0x7FFF_FFFF)) % np.uint32(count)
    return partitions


def _murmur2(keys: npt.NDArray[np.uint8]) -> Words:
    """murmur2 of each row of bytes. Words overflow on purpose."""
    count, length = keys.shape
    whole = length // 4 * 4
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").astype(np.uint32)
    hashes = np.full(count, SEED ^ np.uint32(length), np.uint32)
    for column in range(whole // 4):
        word = words[:, column] * M
        word ^= word >> R
        word *= M
        hashes *= M
        hashes ^= word
    for at in reversed(range(whole, length)):
        hashes ^= keys[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
    if length > whole:
        hashes *= M
    hashes ^= hashes >> np.uint32(13)
    hashes *= M
    hashes ^= hashes >> np.uint32(15)
    return hashes
