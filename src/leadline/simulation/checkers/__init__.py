"""The laws of a cluster, checked against the histories of clients and the state of brokers.

Each law of the design, and its checker in a simulation:

    an acknowledged acks=all record survives       writes.lost_writes at rest; Invariants.acknowledged when it is
                                                   acknowledged; each replica in sync has it: Invariants, after each
                                                   decision, truncation and acknowledgement
    with flush.messages, it is on disk by then     the same, with power cuts and failed disks: a broker that is down
                                                   counts with what its disk has (disk_contents.stored_end)
    the high watermark never goes back             running.RunningChecks.led, after each step
    replicas are the same below it                 replicas.different_replicas at rest
    the epoch cache increases, as the batches do   replicas.inconsistent_epochs at rest
    an index never points past its log             indexes.indexes_past_their_log, after each start and recovery, and at
                                                   rest
    recovering twice equals recovering once        recoveries.unrepeatable_recoveries, after each crash
    an idempotent producer leaves no duplicate,    writes.doubled_writes, unordered_writes and lost_writes at rest
    and no gap
    read_committed sees whole transactions         transactions.torn_transactions, reads.aborted_reads at rest
    one controller per controller epoch            running.RunningChecks.controller_elected; a deposed one decides
                                                   nothing: Invariants
    a group's generation only grows                running.RunningChecks.generation_began; groups.shrunken_generations
    no partition has two owners in a generation    groups.doubled_owners at rest
    no input makes a process crash or hang         VirtualLoop.failures, its check of the pace, writes.internal_errors
    a full disk fails a request, not a directory   DiskFaults.disk_full; Simulation._stalled once there is room again

Not checked here: limits of memory, threads and descriptors, which a simulated process does not have; and that a fast
path checks what the slow one checks, which tests of both paths compare.
"""
