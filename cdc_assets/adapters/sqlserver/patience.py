"""How long a question that asks little may stay unanswered before its connection is given up.

Such questions are about the catalogue or the end of the log, and a server in good health answers them within moments. On a
connection that is open on one side only the answer never comes, and the limit of statements is minutes long: so the
stream would wait that long for a server that answers everybody else.

*Why nothing that is only slow is given up for ever.* The question is repeated on a new connection, first with a statement that asks
nothing: if that is answered and the question was not, the server is slow to answer this question. Its limit doubles, until it is
answered or has the limit of all statements. Other questions, which are answered soon, keep theirs. A server that does not
answer that statement either hangs, which says nothing about the question: the limit stays, and the end of the hang is found soon.
"""

MIN_S = 30.0


class Patience:
    """The limits of one session.

    Args:
        most_s: the limit of all statements, in seconds; 0 if there is none, and then questions have none either.
    """

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._slow: dict[str, float] = {}
        """Limits of questions that took longer than others, by their text."""

    def limit_s(self, question: str) -> float:
        """Seconds for which a question may stay unanswered now; 0 for ever."""
        return min(self._max_s, self._slow.get(question, MIN_S))

    def lost(self, question: str) -> None:
        """A question was not answered, on a connection that had answered before."""
        self._slow[question] = 2 * self._slow.get(question, MIN_S)

    def answered(self, question: str, after_s: float) -> None:
        """A question was answered after so many seconds."""
        if 2 * after_s > MIN_S:
            self._slow[question] = 2 * after_s
        else:
            self._slow.pop(question, None)
