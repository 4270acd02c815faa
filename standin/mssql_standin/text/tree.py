"""Statements of a batch. Expressions and queries stay text until they are compiled."""

from dataclasses import dataclass, field

from mssql_standin.text.lexer import Token


@dataclass(slots=True, eq=False)
class Statement:
    """Any statement; `line` is that of its first word in the batch, from 1."""

    line: int


@dataclass(slots=True, eq=False)
class Block(Statement):
    """BEGIN … END, and the batch itself."""

    statements: list[Statement]


@dataclass(slots=True, eq=False)
class If(Statement):
    """IF condition then [ELSE otherwise]."""

    condition: str
    then: Statement
    otherwise: Statement | None


@dataclass(slots=True, eq=False)
class Declaration:
    """One item of DECLARE."""

    name: str
    type: str
    """Type text; empty for a table variable."""
    value: str
    table: tuple[Token, ...] = ()
    """Tokens of the column list of a table variable, with its parentheses."""


@dataclass(slots=True, eq=False)
class Declare(Statement):
    """DECLARE @a int = 1, @t TABLE (…)."""

    items: list[Declaration]


@dataclass(slots=True, eq=False)
class Assign(Statement):
    """SET @name operator expression."""

    name: str
    operator: str
    expression: str


@dataclass(slots=True, eq=False)
class SetOption(Statement):
    """SET of a session option."""

    tokens: tuple[Token, ...]


@dataclass(slots=True, eq=False)
class Print(Statement):
    """PRINT expression."""

    expression: str


@dataclass(slots=True, eq=False)
class RaiseError(Statement):
    """RAISERROR (message, severity, state, …) WITH options."""

    arguments: list[str]
    options: frozenset[str]


@dataclass(slots=True, eq=False)
class WaitFor(Statement):
    """WAITFOR DELAY or TIME."""

    kind: str
    expression: str


@dataclass(slots=True, eq=False)
class Use(Statement):
    """USE database."""

    database: str


@dataclass(slots=True, eq=False)
class Transaction(Statement):
    """BEGIN, COMMIT, ROLLBACK or SAVE TRANSACTION; `name` may be a variable."""

    verb: str
    name: str


@dataclass(slots=True, eq=False)
class Argument:
    """An argument of EXEC: an expression text, DEFAULT, or a variable for output."""

    name: str
    expression: str
    output: bool = False
    default: bool = False


@dataclass(slots=True, eq=False)
class Execute(Statement):
    """EXEC [@status =] procedure arguments."""

    status: str
    procedure: str
    """As written; a variable may hold the name."""
    arguments: list[Argument] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Query(Statement):
    """A SELECT, with common table expressions or without."""

    text: str


@dataclass(slots=True, eq=False)
class Change(Statement):
    """INSERT, UPDATE or DELETE."""

    verb: str
    text: str
    with_clause: str = ""
    """Text of `WITH x AS (…)`, empty without."""


@dataclass(slots=True, eq=False)
class Definition(Statement):
    """CREATE, ALTER, DROP, TRUNCATE and what else has a head of words."""

    text: str
