from leadline.model import Buffer
from leadline.spark.batches.record_positions import Longs

def fill(data: Buffer, begins: Longs, ends: Longs, counts: Longs, columns: Longs) -> bool: ...
