from leadline.records.batch import Data
from leadline.spark.batches.places import Longs

def fill(data: Data, begins: Longs, ends: Longs, counts: Longs, columns: Longs) -> bool: ...
