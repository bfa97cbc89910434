"""The partitions of one fetch, in a session or without one: which are read, and which a response reports.

without a session, and in the first fetch of one, every partition is read and reported
later, those are read that may have changed, and those are reported that have news
"""

from collections.abc import Container, Iterable, Mapping

from leadline.api.fetch_params import FetchParams, forgotten_partitions, named_positions
from leadline.api.fetch_response import FetchedPair, FetchedPartition, has_diverged, length_of, redirects
from leadline.api.fetch_sessions import SentWatermarks, Session, Sessions, TopicIdPartition
from leadline.model import NONE
from leadline.wire.fetch_position import FINAL_EPOCH, FULL_EPOCH, FetchPosition
from leadline.wire.messages import FetchRequest


class FetchContext:
    __slots__ = ("is_full", "positions", "session")

    def __init__(
        self, positions: Mapping[TopicIdPartition, FetchPosition], session: Session | None, is_full: bool
    ) -> None:
        self.positions, self.session = positions, session
        self.is_full = is_full  # every partition is read and reported

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    def candidates(self) -> Iterable[tuple[TopicIdPartition, FetchPosition]]:
        """The partitions that may have changed."""
        positions, session = self.positions, self.session
        if self.is_full or session is None:
            return positions.items()
        return [(key, positions[key]) for key in session.candidates()]

    def reported(self, partitions: list[FetchedPair]) -> list[FetchedPair]:
        """The partitions that the response has."""
        session = self.session
        if session is None or self.is_full:
            return partitions
        return [pair for pair in partitions if _has_news(session, pair)]

    def respond(self, partitions: list[FetchedPair], unsettled: Container[TopicIdPartition]) -> None:
        """The response is sent: its watermarks count as sent. Settled partitions are not read until they change."""
        if self.session is not None:
            for key, part in partitions:
                self._sent(self.session, key, part, key not in unsettled)

    def _sent(self, session: Session, key: TopicIdPartition, part: FetchedPartition, is_settled: bool) -> None:
        if part.error_code != NONE or has_diverged(part):  # the watermarks of such a response do not count
            session.sent.pop(key, None)
        else:
            session.sent[key] = _watermarks(part)
            if is_settled:
                session.fresh.pop(key, None)
        if length_of(part) and not self.is_full:
            session.serve_last(key)


def _has_news(session: Session, pair: FetchedPair) -> bool:
    key, part = pair
    if part.error_code != NONE or length_of(part) or redirects(part):
        return True
    return session.sent.get(key) != _watermarks(part)


def _watermarks(part: FetchedPartition) -> SentWatermarks:
    return SentWatermarks(part.high_watermark, part.last_stable_offset, part.log_start_offset)


def fetch_context(
    request: FetchRequest, params: FetchParams, is_broker: bool, sessions: Sessions, now_ms: int
) -> FetchContext:
    """Opens, resumes or closes the session that the request names. `is_broker`: it is a follower, and may be one."""
    named = named_positions(request)
    if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.close(request.session_id)
        session = None
        if request.session_epoch == FULL_EPOCH:
            session = sessions.open(named, params.by_id, now_ms)
            _note(session, params, is_broker, now_ms)
        return FetchContext(named, session, True)
    forgotten = forgotten_partitions(request)
    session = sessions.resume(request.session_id, request.session_epoch, named, forgotten, params.by_id, now_ms)
    if session is None:
        return FetchContext(named, None, True)
    _note(session, params, is_broker, now_ms)
    return FetchContext(session.positions, session, False)


def _note(session: Session | None, params: FetchParams, is_broker: bool, now_ms: int) -> None:
    """Only a follower that may be one counts as a contact with it, and as the owner of the session."""
    if session is not None:
        if is_broker or not params.is_follower:
            session.replica = params.replica
        session.touch(now_ms, is_contact=is_broker)
