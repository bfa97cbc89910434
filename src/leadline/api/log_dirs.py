"""DescribeLogDirs and AlterReplicaLogDirs: the replicas in each directory, and their move to another."""

from leadline.api.context import Context
from leadline.errors import InvalidTopic, LogDirNotFound, StorageError, WireError
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.names import MAX_NAME_BYTES
from leadline.model import NONE, TopicPartition
from leadline.replication.replicas import Replicas
from leadline.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

FUTURE_SUFFIX_CHARS = 40  # of a directory: an id and "-future"

_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_Moved = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def describe_log_dirs(request: DescribeLogDirsRequest, ctx: Context) -> DescribeLogDirsResponse:
    """DescribeLogDirs, v0-4.  v3 error for all · v4 total and usable bytes. Null: all topics."""
    if (refusal := ctx.refused("cluster")) is not None:
        return DescribeLogDirsResponse(error_code=refusal.code)
    requested = None
    if request.topics is not None:
        requested = {TopicPartition(topic.topic, n) for topic in request.topics for n in topic.partitions}
    dirs = ctx.services.dirs
    results = [_describe(path, requested, dirs) for path in dirs.dirs]
    results += [_Dir(error_code=StorageError.code, log_dir=path) for path in dirs.offline]
    return DescribeLogDirsResponse(results=results)


def _describe(path: str, requested: set[TopicPartition] | None, dirs: LogDirs) -> _Dir:
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for logs, future in ((dirs.logs, False), (dirs.future, True)):
        for tp, log in logs.items():
            if log.parent == path and (requested is None or tp in requested):
                topic = topics.setdefault(tp.topic, DescribeLogDirsResponse.DescribeLogDirsTopic(name=tp.topic))
                topic.partitions.append(
                    DescribeLogDirsResponse.DescribeLogDirsPartition(
                        partition_index=tp.partition,
                        partition_size=log.size,
                        offset_lag=_lag(log, dirs.logs.get(tp), future),
                        is_future_key=future,
                    )
                )
    space = dirs.files.disk_space(path)
    return _Dir(
        error_code=NONE,
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )


def _lag(log: Log, current: Log | None, future: bool) -> int:
    """A future replica lags behind the current one, a current one behind the high watermark."""
    target = current.log_end if future and current is not None else log.high_watermark
    return max(target - log.log_end, 0)


def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, ctx: Context) -> AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs, v0-2: moves replicas to other directories, while they are in use.

    Of a partition that the request names twice, the last directory counts.
    """
    dirs, replicas, refusal = ctx.services.dirs, ctx.services.replicas, ctx.refused("cluster")
    topics: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    targets = {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    for tp, path in targets.items():
        topic = topics.setdefault(
            tp.topic, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=tp.topic)
        )
        topic.partitions.append(
            _move(tp, path, dirs, replicas)
            if refusal is None
            else _Moved(partition_index=tp.partition, error_code=refusal.code)
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(tp: TopicPartition, path: str, dirs: LogDirs, replicas: Replicas) -> _Moved:
    try:
        if len(str(tp)) + FUTURE_SUFFIX_CHARS > MAX_NAME_BYTES:
            raise InvalidTopic(f"the directory of a future replica of {tp} would have too long a name")
        if path not in dirs.dirs:
            if path in dirs.offline:
                raise StorageError(f"log directory {path} is offline")
            raise LogDirNotFound(f"{path} is not one of log.dirs: {', '.join(dirs.dirs)}")
        replicas.move(tp, path)
    except WireError as error:
        return _Moved(partition_index=tp.partition, error_code=error.code)
    return _Moved(partition_index=tp.partition, error_code=NONE)
