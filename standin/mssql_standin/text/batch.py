"""Batch text to statements.

Nothing is looked up here: names and expressions stay text, which the compiler reads when the statement
runs, so that a batch may create what its later statements use.
"""

from functools import lru_cache
from typing import Final

from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.text import tree
from mssql_standin.text.lexer import Kind
from mssql_standin.text.reader import CHANGES, STARTERS, Reader

_DEFINITIONS: Final = frozenset(
    {"CREATE", "ALTER", "DROP", "TRUNCATE", "GRANT", "REVOKE", "DENY", "CHECKPOINT", "ENABLE", "DISABLE"}
)
_REFUSED: Final = frozenset(
    {
        "GOTO",
        "OPEN",
        "CLOSE",
        "DEALLOCATE",
        "FETCH",
        "BULK",
        "MERGE",
        "WHILE",
        "BREAK",
        "CONTINUE",
        "THROW",
        "KILL",
        "DBCC",
        "RETURN",
    }
)
_TRANSACTION: Final = frozenset({"TRAN", "TRANSACTION"})


@lru_cache(maxsize=2000)
def parse_batch(text: str) -> tree.Block:
    """Parse a batch. The result is shared: nobody may change it.

    Raises:
        SqlError: 102 and its kin; then nothing of the batch runs.
    """
    reader = Reader(text)
    try:
        return tree.Block(1, _statements(reader, first=True))
    except RecursionError as error:
        raise SqlError(191, "Some part of your SQL statement is nested too deeply.", 15) from error


def _statements(reader: Reader, first: bool = False) -> list[tree.Statement]:
    """Statements up to the END that closes their block, or up to the end of the batch."""
    found: list[tree.Statement] = []
    while True:
        while reader.accept(";"):
            pass
        if reader.token() is None:
            return found
        if reader.word() == "END" and not first:
            return found
        found.append(_statement(reader, head=first and not found))


def _statement(reader: Reader, head: bool = False) -> tree.Statement:
    line, word = reader.line(), reader.word()
    parser = _PARSERS.get(word)
    if word in _REFUSED:
        raise unsupported(f"the statement {word}")
    if word == "{":
        raise unsupported("the escape {call …}")
    if parser:
        statement = parser(reader, line)
    elif head and reader.token() and reader.tokens[0].kind in (Kind.WORD, Kind.NAME) and word not in STARTERS:
        statement = _execute(reader, line, implied=True)
    else:
        raise reader.fail()
    reader.accept(";")
    return statement


# ---- control flow --------------------------------------------------------------------------------------------


def _begin(reader: Reader, line: int) -> tree.Statement:
    reader.expect("BEGIN")
    if reader.word() in _TRANSACTION or (reader.word() == "DISTRIBUTED"):
        return _transaction(reader, line, "BEGIN")
    if reader.word() in ("TRY", "CATCH"):
        raise unsupported("TRY … CATCH")
    block = tree.Block(line, _statements(reader))
    reader.expect("END")
    return block


def _if(reader: Reader, line: int) -> tree.Statement:
    reader.expect("IF")
    condition = reader.required("IF")
    then = _statement(reader)
    return tree.If(line, condition, then, _statement(reader) if reader.accept("ELSE") else None)


# ---- variables and options -----------------------------------------------------------------------------------


def _declare(reader: Reader, line: int) -> tree.Statement:
    reader.expect("DECLARE")
    items = [_declaration(reader)]
    while reader.accept(","):
        items.append(_declaration(reader))
    return tree.Declare(line, items)


def _declaration(reader: Reader) -> tree.Declaration:
    token = reader.take()
    if token.kind is not Kind.VARIABLE:
        if reader.word() == "CURSOR":
            raise unsupported("cursors")
        raise syntax_error(token.value)
    reader.accept("AS")
    if reader.accept("TABLE"):
        first, last = reader.parenthesised()
        return tree.Declaration(token.text, "", "", tuple(reader.tokens[first - 1 : last + 1]))
    kind = reader.required("DECLARE", ",=")
    if kind.upper() == "CURSOR" or kind.upper().startswith("CURSOR "):
        raise unsupported("cursors")
    value = reader.required("DECLARE", ",") if reader.accept("=") else ""
    return tree.Declaration(token.text, kind, value)


def _set(reader: Reader, line: int) -> tree.Statement:
    reader.expect("SET")
    token = reader.token()
    if token and token.kind is Kind.VARIABLE:
        reader.take()
        operator = reader.take().text
        if operator not in ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="):
            raise syntax_error(operator)
        return tree.Assign(line, token.text, operator, reader.required("SET"))
    first = reader.place
    reader.required("OPTION")
    return tree.SetOption(line, tuple(reader.tokens[first : reader.place]))


def _use(reader: Reader, line: int) -> tree.Statement:
    reader.expect("USE")
    return tree.Use(line, reader.take().value)


# ---- messages ------------------------------------------------------------------------------------------------


def _print(reader: Reader, line: int) -> tree.Statement:
    reader.expect("PRINT")
    return tree.Print(line, reader.required("PRINT"))


def _listed(reader: Reader, verb: str) -> list[str]:
    """Comma-separated expressions up to the end of the statement or of the parentheses."""
    arguments = [reader.required(verb, ",")]
    while reader.accept(","):
        arguments.append(reader.required(verb, ","))
    return arguments


def _raise_error(reader: Reader, line: int) -> tree.Statement:
    reader.expect("RAISERROR")
    parenthesised = reader.accept("(")
    arguments = _listed(reader, "RAISERROR")
    if parenthesised:
        reader.expect(")")
    options: list[str] = []
    if reader.accept("WITH"):
        options.append(reader.take().upper)
        while reader.accept(","):
            options.append(reader.take().upper)
    return tree.RaiseError(line, arguments, frozenset(options))


def _wait_for(reader: Reader, line: int) -> tree.Statement:
    reader.expect("WAITFOR")
    kind = reader.take().upper
    if kind not in ("DELAY", "TIME"):
        raise unsupported(f"WAITFOR {kind}".strip())
    return tree.WaitFor(line, kind, reader.required("WAITFOR"))


# ---- transactions --------------------------------------------------------------------------------------------


def _transaction_statement(reader: Reader, line: int) -> tree.Statement:
    return _transaction(reader, line, reader.take().upper)


def _transaction(reader: Reader, line: int, verb: str) -> tree.Statement:
    if reader.accept("DISTRIBUTED"):
        raise unsupported("distributed transactions")
    if reader.word() in _TRANSACTION:
        reader.take()
    elif verb == "SAVE":
        raise reader.fail()
    elif reader.accept("WORK"):
        return tree.Transaction(line, verb, "")
    else:
        return tree.Transaction(line, verb, "")
    token = reader.token()
    named = token is not None and (
        token.kind in (Kind.NAME, Kind.VARIABLE)
        or (token.kind is Kind.WORD and token.upper not in STARTERS and token.upper != "WITH")
    )
    name = reader.take() if named else None
    if reader.accept("WITH"):
        reader.rest("COMMIT")
    if verb == "SAVE" and name is None:
        raise reader.fail()
    return tree.Transaction(line, verb, name.value if name else "")


# ---- EXEC ----------------------------------------------------------------------------------------------------


def _execute(reader: Reader, line: int, implied: bool = False) -> tree.Statement:
    if not implied:
        reader.take()
    if reader.word() == "(":
        raise unsupported("EXEC (text); use sp_executesql")
    if reader.word() == "AS":
        raise unsupported("EXECUTE AS")
    status = ""
    if (
        reader.token()
        and reader.token(1)
        and reader.tokens[reader.place].kind is Kind.VARIABLE
        and reader.word(1) == "="
    ):
        status = reader.take().text
        reader.expect("=")
    name = _procedure_name(reader)
    return tree.Execute(line, status, name, _arguments(reader))


def _procedure_name(reader: Reader) -> str:
    first = reader.place
    if reader.take().kind not in (Kind.WORD, Kind.NAME, Kind.VARIABLE):
        reader.place -= 1
        raise reader.fail()
    while reader.accept("."):
        while reader.accept("."):
            pass
        reader.take()
    name = reader.between(first, reader.place)
    if reader.accept(";"):
        token = reader.token()
        if token and token.kind is Kind.NUMBER:
            reader.take()
        else:
            reader.place -= 1
    return name


def _arguments(reader: Reader) -> list[tree.Argument]:
    if reader.token() is None or reader.word() in (";", "WITH", ")") or reader.word() in STARTERS:
        return []
    arguments = [_argument(reader)]
    while reader.accept(","):
        arguments.append(_argument(reader))
    if reader.accept("WITH"):
        reader.rest("EXEC")
    return arguments


def _argument(reader: Reader) -> tree.Argument:
    name = ""
    token = reader.token()
    if token and token.kind is Kind.VARIABLE and reader.word(1) == "=":
        name = reader.take().text
        reader.expect("=")
    first = reader.place
    last = reader.end_of("EXEC", ",")
    words = [token.upper for token in reader.tokens[first:last]]
    if "WITH" in words and last - first > 1:
        last = first + words.index("WITH")
    if first == last:
        raise reader.fail()
    reader.place = last
    output = last - first > 1 and words[last - first - 1] in ("OUT", "OUTPUT")
    _check_value(reader, first, last - output)
    text = reader.between(first, last - output)
    if (
        last - first == 1
        and reader.tokens[first].kind in (Kind.WORD, Kind.NAME)
        and words[0] not in ("NULL", "DEFAULT")
    ):
        text = "N'" + reader.tokens[first].value.replace("'", "''") + "'"
    return tree.Argument(name, text, output, words[0] == "DEFAULT" and last - first == 1)


_VALUES: Final = (Kind.VARIABLE, Kind.STRING, Kind.NUMBER, Kind.BINARY, Kind.WORD, Kind.NAME)


def _check_value(reader: Reader, first: int, last: int) -> None:
    """An argument is a constant, a variable or a bare word; EXEC takes no expressions.

    Raises:
        SqlError: 102 at the first token that does not belong there.
    """
    place = first
    while place < last and reader.tokens[place].text in ("+", "-", "$"):
        place += 1
    signed = place > first
    wanted = (Kind.NUMBER,) if signed else _VALUES
    if place < last and reader.tokens[place].kind in wanted:
        place += 1
    if place < last or place == first:
        reader.place = place
        raise reader.fail()


# ---- queries, changes, definitions ---------------------------------------------------------------------------


def _query(reader: Reader, line: int) -> tree.Statement:
    first = reader.place
    if reader.word() == "(":
        reader.parenthesised()
    else:
        reader.take()
    reader.rest("SELECT")
    return tree.Query(line, reader.between(first, reader.place))


def _change(reader: Reader, line: int, with_clause: str = "") -> tree.Statement:
    first = reader.place
    verb = reader.take().upper
    if verb == "INSERT" and reader.word() == "BULK" and reader.word(1) not in ("(", "VALUES", "SELECT", "DEFAULT"):
        raise unsupported("bulk load (INSERT BULK, BCP, SqlBulkCopy): send INSERT statements")
    if verb == "UPDATE" and reader.word() == "STATISTICS":
        reader.rest("UPDATE")
        return tree.Definition(line, reader.between(first, reader.place))
    reader.rest(verb)
    return tree.Change(line, verb, reader.between(first, reader.place), with_clause)


def _with(reader: Reader, line: int) -> tree.Statement:
    """A statement with common table expressions; the parentheses hide their queries."""
    first = reader.place
    reader.take()
    while True:
        reader.take()
        if reader.word() == "(":
            reader.parenthesised()
        reader.expect("AS")
        reader.parenthesised()
        if not reader.accept(","):
            break
    if reader.word() in CHANGES:
        return _change(reader, line, reader.between(first, reader.place))
    if reader.word() == "SELECT":
        reader.take()
    elif reader.word() in _REFUSED:
        raise unsupported(f"the statement {reader.word()}")
    elif reader.word() != "(":
        raise reader.fail()
    reader.rest("SELECT")
    return tree.Query(line, reader.between(first, reader.place))


def _definition(reader: Reader, line: int) -> tree.Statement:
    first = reader.place
    verb = reader.take().upper
    if verb in ("CREATE", "ALTER"):
        ahead = 2 if reader.word() == "OR" else 0
        kind = {"PROC": "PROCEDURE"}.get(reader.word(ahead), reader.word(ahead))
        if kind in ("VIEW", "PROCEDURE") and any(token.text != ";" for token in reader.tokens[:first]):
            raise SqlError(111, f"'{verb} {kind}' must be the first statement in a query batch.", 15)
        if reader.word(ahead) in ("VIEW", "PROCEDURE", "PROC", "FUNCTION", "TRIGGER"):
            reader.place = len(reader.tokens)
    reader.rest(verb)
    return tree.Definition(line, reader.between(first, reader.place))


_PARSERS: Final = {
    "BEGIN": _begin, "IF": _if,
    "DECLARE": _declare, "SET": _set, "USE": _use,
    "PRINT": _print, "RAISERROR": _raise_error, "WAITFOR": _wait_for,
    "COMMIT": _transaction_statement, "ROLLBACK": _transaction_statement, "SAVE": _transaction_statement,
    "EXEC": _execute, "EXECUTE": _execute,
    "SELECT": _query, "(": _query, "WITH": _with,
    **dict.fromkeys(CHANGES, _change), **dict.fromkeys(_DEFINITIONS, _definition),
}  # fmt: skip
