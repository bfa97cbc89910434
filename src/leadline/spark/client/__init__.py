"""The pipeline's own client of a cluster: raw fetches, offsets, groups and transactions."""
