"""Fast paths: requests that repeat an earlier one except for some numbers are served without the codec.

A fast path belongs to its entry in THE TABLE. It returns a whole reply, or None: then nothing has happened, and the
handler of the entry serves the request. It makes every check that the handler makes.
"""
