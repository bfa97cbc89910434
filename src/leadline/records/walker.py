"""The walk over records that runs here: compiled if it was built, else in Python. Both give the same results.

Pure: chooses.
"""

from leadline.records import python_walker
from leadline.records.compiled_part import compiled_walker as compiled_walker

IS_COMPILED = compiled_walker is not None
DESCRIPTION = "compiled record walker" if IS_COMPILED else "record walker in pure Python"

check = compiled_walker.check if IS_COMPILED else python_walker.check
check_chunks = compiled_walker.check_chunks if IS_COMPILED else python_walker.check_chunks
rows = compiled_walker.rows if IS_COMPILED else python_walker.rows
learn_keys = compiled_walker.learn_keys if IS_COMPILED else python_walker.learn_keys
retained = compiled_walker.retained if IS_COMPILED else python_walker.retained
joined = compiled_walker.joined if IS_COMPILED else python_walker.joined
whole_batches = compiled_walker.whole_batches if IS_COMPILED else python_walker.whole_batches
learn_plain = compiled_walker.learn_plain if IS_COMPILED else python_walker.learn_plain
clean_plain = compiled_walker.clean_plain if IS_COMPILED else python_walker.clean_plain
scan_usual = compiled_walker.scan_usual if IS_COMPILED else python_walker.scan_usual
clean_packed = compiled_walker.clean_packed if IS_COMPILED else python_walker.clean_packed
