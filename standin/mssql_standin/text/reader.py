"""A place in the tokens of a batch, and where a statement ends.

T-SQL needs no semicolons, so a statement ends where, outside parentheses and CASE, a word
stands that begins another statement and cannot belong to the present one (`Reader._belongs`).
"""

from typing import Final

from mssql_standin.errors import SqlError, syntax_error
from mssql_standin.text.lexer import Kind, Token, tokenize

STARTERS: Final = frozenset(
    """
    ALTER BEGIN BREAK COMMIT CONTINUE CREATE DECLARE DELETE DENY DROP ELSE END EXEC EXECUTE GOTO GRANT IF INSERT MERGE PRINT
    RAISERROR RETURN REVOKE ROLLBACK SAVE SELECT SET THROW TRUNCATE UPDATE USE WAITFOR WHILE DBCC CHECKPOINT KILL
    OPEN CLOSE DEALLOCATE FETCH ENABLE DISABLE
    """.split()  # noqa: SIM905 - a word list reads better as text
)
CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE"})
# what may follow which word inside a statement although it could begin another one
_AFTER: Final[dict[str, frozenset[str]]] = {
    "SELECT": frozenset({"UNION", "ALL", "EXCEPT", "INTERSECT", "AS", "FOR", "GRANT", "DENY", "REVOKE", ","}),
    "ROLLBACK": frozenset({"WITH"}),
    "SET": frozenset({"DELETE", "UPDATE"}),
    "DELETE": frozenset({"ON", "THEN", "GRANT", "DENY", "REVOKE", ","}),
    "UPDATE": frozenset({"ON", "THEN", "FOR", "GRANT", "DENY", "REVOKE", ","}),
    "INSERT": frozenset({"THEN", "GRANT", "DENY", "REVOKE", ",", "BULK"}),
    "ALTER": frozenset({"GRANT", "DENY", "REVOKE", ","}),
    "EXECUTE": frozenset({"GRANT", "DENY", "REVOKE", ",", "WITH", "AS"}),
    "EXEC": frozenset({"GRANT", "DENY", "REVOKE", ","}),
    "FETCH": frozenset({"ROW", "ROWS"}),
    "MERGE": frozenset({"INNER", "LEFT", "RIGHT", "FULL", "OUTER"}),
    "IF": frozenset({"TABLE", "INDEX", "DATABASE", "SCHEMA", "TYPE", "VIEW", "COLUMN", "CONSTRAINT", "PROCEDURE", "PROC",
                     "FUNCTION", "TRIGGER", "USER", "LOGIN", "ROLE", "SEQUENCE", "SYNONYM"}),
}  # fmt: skip


class Reader:
    """A place in the tokens of a batch."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.place = 0

    # ---- looking ---------------------------------------------------------------------------------------------

    def token(self, ahead: int = 0) -> Token | None:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """The keyword there in upper case, the sign, or an empty text."""
        token = self.token(ahead)
        return "" if token is None else token.upper or (token.text if token.kind is Kind.SIGN else "")

    def line(self) -> int:
        token = self.token() or (self.tokens[-1] if self.tokens else None)
        return token.line if token else 1

    def fail(self) -> SqlError:
        token = self.token() or (self.tokens[-1] if self.tokens else None)
        error = syntax_error(token.value if token else "")
        error.line = self.line()
        return error

    # ---- taking ----------------------------------------------------------------------------------------------

    def take(self) -> Token:
        token = self.token()
        if token is None:
            raise self.fail()
        self.place += 1
        return token

    def accept(self, *words: str) -> bool:
        """Take these words if they all come next."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self.place += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.fail()

    def between(self, first: int, last: int) -> str:
        """Text of tokens `first` … `last - 1`."""
        if first >= last:
            return ""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def rest(self, verb: str, stop: str = "") -> str:
        """Take the rest of a statement of that verb, or up to a sign of `stop` outside parentheses; its text."""
        first = self.place
        self.place = self.end_of(verb, stop)
        return self.between(first, self.place)

    def required(self, verb: str, stop: str = "") -> str:
        text = self.rest(verb, stop)
        if not text:
            raise self.fail()
        return text

    def parenthesised(self) -> tuple[int, int]:
        """Take `( … )`; the places behind the first and of the last parenthesis."""
        self.expect("(")
        first, depth = self.place, 1
        while depth:
            sign = self.take().text
            depth += (sign == "(") - (sign == ")")
        return first, self.place - 1

    # ---- where a statement ends ------------------------------------------------------------------------------

    def end_of(self, verb: str, stop: str) -> int:
        depth = cases = 0
        used: set[str] = set()
        place = self.place
        while place < len(self.tokens):
            token = self.tokens[place]
            word = token.upper
            if token.kind is Kind.SIGN:
                if depth == 0 and (token.text == ";" or token.text in stop):
                    break
                depth += (token.text == "(") - (token.text == ")")
                if depth < 0:
                    break
            elif word and not depth:
                if word == "VALUES":
                    used.add("source")
                if word == "CASE":
                    cases += 1
                elif word == "END" and cases:
                    cases -= 1
                elif word == "ELSE" and cases:
                    pass
                elif word in STARTERS and not cases and not self._belongs(verb, word, place, used):
                    break
            place += 1
        return place

    def _belongs(self, verb: str, word: str, place: int, used: set[str]) -> bool:
        """Whether a word that could begin a statement is part of the present one."""
        before = self.tokens[place - 1] if place else None
        if before and (before.text == "." or (place + 1 < len(self.tokens) and self.tokens[place + 1].text == ".")):
            return True
        previous = before.upper or before.text if before else ""
        if word == "MERGE" and verb in ("SELECT", *CHANGES):
            return previous in _AFTER["MERGE"] or self._next(place) in ("JOIN", "UNION")
        if previous in _AFTER.get(word, ()):
            return True
        if verb == "INSERT" and word in ("SELECT", "EXEC", "EXECUTE") and "source" not in used:
            used.add("source")
            return True
        if verb == "UPDATE" and word == "SET" and "set" not in used:
            used.add("set")
            return True
        if verb == "ALTER":
            return self._belongs_to_alter(word, previous, place)
        return verb == "CREATE" and word in ("EXECUTE", "EXEC") and previous in ("WITH", "AS")

    def _next(self, place: int) -> str:
        return self.tokens[place + 1].upper if place + 1 < len(self.tokens) else ""

    def _belongs_to_alter(self, word: str, previous: str, place: int) -> bool:
        following = self._next(place)
        if word == "ALTER":
            return following == "COLUMN"
        if word == "DROP":
            return following in ("COLUMN", "CONSTRAINT", "MEMBER") or previous == "]" or following == "IF" or (
                following not in _DROPPED and following != "")  # fmt: skip
        if word == "SET":
            return True
        login = place > 1 and self.tokens[place - 2].upper == "LOGIN"
        return word in ("ENABLE", "DISABLE") and (login or following in ("TRIGGER", "CHANGE_TRACKING"))


_DROPPED: Final = frozenset({"TABLE", "INDEX", "DATABASE", "SCHEMA", "TYPE", "VIEW", "PROCEDURE", "PROC", "FUNCTION",
                             "TRIGGER", "USER", "LOGIN", "ROLE", "SEQUENCE", "SYNONYM", "STATISTICS"})  # fmt: skip
