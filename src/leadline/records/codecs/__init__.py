"""The codecs of a record batch, one module each, with the functions that `records.compression` calls.

A module is imported when its codec is first used: a broker whose clients use one codec does not load the others.
"""
