from leadline.records.batch import Data
from leadline.spark.places import Longs

def fill(data: Data, begins: Longs, ends: Longs, counts: Longs, columns: Longs) -> bool: ...
