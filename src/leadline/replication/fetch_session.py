"""A fetch session on the follower's side: requests and responses carry only what changed.

A session opens with a full fetch, which names every partition. From then on a request names only those whose position
changed or that are new, and those to forget; an answer names only those with news. Each request of a session carries
the next epoch, so that a lost or repeated one is noticed. After any error the next request is full again, closes what
there may be of the old session, and opens a new one.

    session id 0: none; epoch 0: full, and opens one
    what the leader remembers is `positions`, as long as it keeps answering

Pure: what to send and what an answer means, over values.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from leadline.errors import FetchSessionIdNotFound
from leadline.model import TopicPartition
from leadline.wire.fetch_position import FIRST_EPOCH, FULL_EPOCH, MAX_EPOCH, NO_SESSION, NO_TOPIC_ID, FetchPosition


class ForgottenPartition(NamedTuple):
    tp: TopicPartition
    topic_id: bytes


class FetchSessionRequest(NamedTuple):
    session_id: int
    session_epoch: int
    named: dict[TopicPartition, FetchPosition]  # in this order
    forgotten: list[ForgottenPartition]
    replaced: list[ForgottenPartition]  # also named, with another topic id: forgotten where ids count, from v13 on
    by_id: bool  # all topics have ids: else v12 at most


class FetchSession:
    def __init__(self) -> None:
        self.id, self.epoch = NO_SESSION, FULL_EPOCH  # of the next request
        self.positions: dict[TopicPartition, FetchPosition] = {}  # all that the last request covered, named or not
        self._names: dict[bytes, str] = {}  # of topics that were ever asked for, by their ids
        self._nameless: set[TopicPartition] = set()  # those whose topic has no id that we know

    @property
    def is_full(self) -> bool:
        return self.epoch == FULL_EPOCH

    def next_request(self, changes: Mapping[TopicPartition, FetchPosition | None]) -> FetchSessionRequest | None:
        """The next request, given the partitions whose position may have changed; position None: fetched no longer.

        Returns None if there is nothing to fetch and nothing to forget.
        """
        named: dict[TopicPartition, FetchPosition] = {}
        forgotten: list[ForgottenPartition] = []
        replaced: list[ForgottenPartition] = []
        for tp, new in changes.items():
            old = self.positions.get(tp)
            if new is None:
                if old is not None:
                    forgotten.append(ForgottenPartition(tp, old.topic_id))
                    del self.positions[tp]
                    self._nameless.discard(tp)
            elif new != old:
                named[tp] = self.positions[tp] = new
                if old is None or old.topic_id != new.topic_id:
                    self._learn(tp, new.topic_id)
                    if old is not None and NO_TOPIC_ID not in (old.topic_id, new.topic_id):
                        replaced.append(ForgottenPartition(tp, old.topic_id))
        by_id = not self._nameless
        if self.is_full:
            request = FetchSessionRequest(self.id, self.epoch, dict(self.positions), [], [], by_id)
        else:
            if forgotten:
                by_id = by_id and all(partition.topic_id != NO_TOPIC_ID for partition in forgotten)
            request = FetchSessionRequest(self.id, self.epoch, named, forgotten, replaced, by_id)
        return request if self.positions or request.forgotten else None

    def _learn(self, tp: TopicPartition, topic_id: bytes) -> None:
        if topic_id == NO_TOPIC_ID:
            self._nameless.add(tp)
        else:
            self._nameless.discard(tp)
            self._names[topic_id] = tp.topic

    def partition(self, topic: str, topic_id: bytes, partition: int) -> TopicPartition | None:
        """The partition that an answer names, by the name of its topic or by its id. None: it was not requested."""
        name = topic if topic_id == NO_TOPIC_ID else self._names.get(topic_id)
        tp = None if name is None else TopicPartition(name, partition)
        return tp if tp in self.positions else None

    def received(
        self, error_code: int, session_id: int, answered: Collection[TopicPartition | None], throttle_ms: int = 0
    ) -> bool:
        """Whether an answer is to be used. `answered`: what it names, None for what we did not ask for."""
        if error_code:
            lost = error_code == FetchSessionIdNotFound.code
            self.id, self.epoch = NO_SESSION if lost else self.id, FULL_EPOCH
            return False
        fits = None not in answered
        if self.is_full:
            fits = fits and self.positions.keys() <= set(answered)
            if not answered and throttle_ms > 0:  # a throttled response without partitions
                fits = False
            self.id = session_id if fits else NO_SESSION
            self.epoch = FULL_EPOCH if self.id == NO_SESSION else FIRST_EPOCH
        elif not fits:
            self.epoch = FULL_EPOCH
        elif session_id == NO_SESSION:  # the leader closed it
            self.id, self.epoch = NO_SESSION, FULL_EPOCH
        else:
            self.epoch = FIRST_EPOCH if self.epoch == MAX_EPOCH else self.epoch + 1
        return fits

    def failed(self) -> None:
        """No answer came: what the leader remembers is unknown."""
        self.epoch = FULL_EPOCH
