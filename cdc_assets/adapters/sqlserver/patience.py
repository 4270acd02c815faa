"""How long a question that asks little may stay unanswered before its connection is given up.

Such questions are about the catalogue or the end of the log, and a server in good health answers them within moments. On a
connection that is open on one side alone the answer never comes, and the limit of statements is minutes long: so the
stream would wait that long for a server that answers everybody else.

*Why nothing that is only slow is given up for ever.* The question is repeated on a new connection, first with a statement that asks
nothing: if that is answered and the question was not, the server is slow, and the limit doubles. What took long once may
take twice as long ever after. A server that does not answer that statement either hangs, which says nothing about the question:
the limit stays, and the end of the hang is found soon.
"""

LEAST_S = 30.0


class Patience:
    """The limit of one session.

    Args:
        most_s: the limit of all statements, in seconds; 0 if there is none, and then questions have none either.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s, self._least_s = most_s, LEAST_S
        self._now_s = LEAST_S

    @property
    def limit_s(self) -> float:
        """Seconds for which a question may stay unanswered now; 0 for ever."""
        return min(self._most_s, self._now_s)

    def lost(self) -> None:
        """A question was not answered, on a connection that had answered before."""
        self._now_s *= 2

    def answered(self, after_s: float) -> None:
        """A question was answered after so many seconds."""
        self._least_s = max(self._least_s, 2 * after_s)
        self._now_s = self._least_s
