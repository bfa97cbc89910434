"""The partitions of one fetch, in a session or without one: which are read, and which a response reports.

without a session, and in the first fetch of one, every partition is read and reported
later, those are read that may have changed, and those are reported that have news
"""

from collections.abc import Container, Iterable, Mapping

from leadline.api.fetch_params import FetchParams, forgotten_partitions, named_positions
from leadline.api.fetch_response import FetchedPair, has_diverged, length_of, redirects
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

    def reported(self, partitions: list[FetchedPair], unsettled: Container[TopicIdPartition]) -> list[FetchedPair]:
        """The partitions that the response has. Those that are settled are not read again until they change."""
        session = self.session
        if session is None:
            return partitions
        return [pair for pair in partitions if self._is_reported(session, pair, pair[0] not in unsettled)]

    def _is_reported(self, session: Session, pair: FetchedPair, is_settled: bool) -> bool:
        """If so, its watermarks count as sent from now on."""
        key, part = pair
        size = length_of(part)
        sent = SentWatermarks(part.high_watermark, part.last_stable_offset, part.log_start_offset)
        has_news = session.has_news(key, sent) or size > 0 or redirects(part)
        if part.error_code != NONE or has_diverged(part):  # the watermarks of such a response do not count
            session.sent.pop(key, None)
            has_news = True
        elif is_settled:
            session.fresh.pop(key, None)
        if size and not self.is_full:
            session.serve_last(key)
        return has_news or self.is_full


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
