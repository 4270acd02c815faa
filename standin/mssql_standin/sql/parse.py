"""T-SQL text to syntax trees.

sqlglot's T-SQL dialect is made to *transpile*: it turns functions into nodes of its own
(GETDATE and SYSDATETIME become one), drops the difference between real and float, takes words
of other dialects as keywords and gives `& | ^` another precedence than SQL Server does. The dialect
here keeps sqlglot's grammar of queries and data changes and replaces the rest:

* every function call is `Anonymous(this=name, expressions=arguments)`, names as written;
* CAST, CONVERT and their TRY_ forms are `Convert(this=Var(type text), expression=…, style=…, safe=…)`,
  PARSE is `Anonymous("PARSE", [value, Var(type text), culture?])`;
* type arguments stay text for `sqltypes.parse_type`;
* only SQL Server's own words are keywords.

Trees are cached and shared: nobody may change one.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.tsql import TSQLParser
from sqlglot.tokens import Token, TokenType

from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.sql.escapes import without_escapes

_WORDS: Final = tuple(
    """
ALL AND ANY AS ASC BEGIN BETWEEN CASE COLLATE CROSS CURRENT_TIMESTAMP CURRENT_USER CUBE DEFAULT DELETE DESC DISTINCT
ELSE END ESCAPE EXCEPT EXISTS FETCH FIRST FOR FROM FULL HAVING IN INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE MERGE NEXT
NOT NULL OFFSET ON OPTION OR OUTER OUTPUT OVER PARTITION PERCENT PIVOT RANGE RIGHT ROLLUP ROW ROWS SELECT SESSION_USER
SET SOME SYSTEM_USER TABLESAMPLE THEN TOP UNION UNPIVOT UPDATE USING VALUES WHEN WHERE WITH XML APPLY
""".split()  # noqa: SIM905 - a word list reads better as text
)
_RESERVED: Final = (
    "ALTER",
    "BY",
    "COMMIT",
    "CREATE",
    "DECLARE",
    "DROP",
    "EXEC",
    "EXECUTE",
    "GRANT",
    "GROUP",
    "IF",
    "ORDER",
    "PRINT",
    "RETURN",
    "ROLLBACK",
    "TRUNCATE",
    "USE",
    "WHILE",
)
"""Words of other statements: never names without brackets."""
_PHRASES: Final = ("GROUP BY", "GROUPING SETS", "ORDER BY", "PARTITION BY")
_OPERATORS: Final = (">=", "<=", "<>", "!=")

_NILADIC: Final = frozenset({"CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "USER"})
_UNSUPPORTED: Final = frozenset(
    """
CONTAINS FREETEXT CONTAINSTABLE FREETEXTTABLE OPENROWSET OPENQUERY OPENDATASOURCE OPENJSON OPENXML STRING_SPLIT IDENTITY
SQL_VARIANT_PROPERTY JSON_VALUE JSON_QUERY JSON_MODIFY ISJSON GROUPING GROUPING_ID UPDATE AVG STDEV STDEVP VAR VARP STRING_AGG
CHECKSUM_AGG APPROX_COUNT_DISTINCT PERCENT_RANK CUME_DIST FIRST_VALUE LAST_VALUE LAG LEAD NTILE CHOOSE GREATEST LEAST CONCAT_WS
TRY_PARSE FORMAT FORMATMESSAGE DATEDIFF_BIG DATENAME DATETRUNC EOMONTH DATEFROMPARTS DATETIMEFROMPARTS SMALLDATETIMEFROMPARTS
DATETIME2FROMPARTS TIMEFROMPARTS DATETIMEOFFSETFROMPARTS ISDATE SWITCHOFFSET YEAR MONTH DAY HASHBYTES BINARY_CHECKSUM
NULLIF IIF RIGHT SUBSTRING TRIM LTRIM RTRIM UPPER LOWER CHAR CHARINDEX PATINDEX REPLACE STUFF QUOTENAME ASCII UNICODE STR SPACE REVERSE TRANSLATE PARSENAME ISNUMERIC STRING_ESCAPE FLOOR
CEILING SIGN ROUND SQRT EXP LOG LOG10 SIN COS TAN COT ASIN ACOS ATAN ATN2 SQUARE PI POWER DEGREES RADIANS RAND BIT_COUNT LEFT_SHIFT
RIGHT_SHIFT TYPE_ID TYPE_NAME COL_NAME COLUMNPROPERTY OBJECTPROPERTY OBJECTPROPERTYEX INDEX_COL COLLATIONPROPERTY ORIGINAL_DB_NAME
USER_NAME USER_ID DATABASE_PRINCIPAL_ID SUSER_ID IS_MEMBER IS_ROLEMEMBER IS_SRVROLEMEMBER APP_NAME PROGRAM_NAME HOST_NAME HOST_ID
ORIGINAL_LOGIN CURRENT_TRANSACTION_ID CONTEXT_INFO CONNECTIONPROPERTY
""".split()  # noqa: SIM905 - a word list reads better as text
)
"""Functions of SQL Server that the stand-in does not have."""
_TWO_WORD_TYPES: Final = frozenset({"PRECISION", "VARYING", "CHAR", "CHARACTER", "TEXT"})


class _Parser(TSQLParser):
    """sqlglot's grammar without its function and type semantics."""

    TERM: ClassVar = {
        TokenType.DASH: exp.Sub,
        TokenType.PLUS: exp.Add,
        TokenType.AMP: exp.BitwiseAnd,
        TokenType.PIPE: exp.BitwiseOr,
        TokenType.CARET: exp.BitwiseXor,
    }
    BITWISE: ClassVar[dict[TokenType, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}

    def parse_condition_text(self, tokens: list[Token], sql: str) -> list[exp.Expression | None]:
        """A scalar expression or a condition, alone."""
        trees: list[exp.Expression | None] = self._parse(
            parse_method=type(self)._parse_disjunction, raw_tokens=tokens, sql=sql
        )
        return trees

    def _parse_unary(self) -> Any:
        this = super()._parse_unary()
        if isinstance(this, exp.Parameter) and self._next and self._next.token_type == TokenType.EQ:
            operation = self.TERM.get(self._curr.token_type) or self.FACTOR.get(self._curr.token_type)
            if operation:
                raise unsupported(f"SELECT @variable {self._curr.text}= …")
        while this is not None:
            if self._match(TokenType.COLLATE):
                this = exp.Collate(this=this, expression=exp.Var(this=self._advance_any() and self._prev.text))
            elif self._match_text_seq("AT", "TIME", "ZONE"):
                raise unsupported("AT TIME ZONE")
            else:
                return this
        return this

    def _negate_range(self, this: Any = None) -> Any:
        """NOT LIKE, NOT IN and NOT BETWEEN are negations; sqlglot would hide that of LIKE in an argument."""
        return this and exp.Not(this=this)

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        return self._parse_atom() or self._parse_column()

    def _parse_function_call(
        self, functions: Any = None, anonymous: bool = False, optional_parens: bool = True, any_token: bool = False
    ) -> Any:
        token = self._curr
        if not token:
            return None
        name, upper = token.text, token.text.upper()
        plain = token.token_type not in self.INVALID_FUNC_NAME_TOKENS
        after_dot = self._prev is not None and self._prev.token_type == TokenType.DOT
        if plain and not after_dot and optional_parens:
            if upper == "CASE":
                self._advance()
                return self._parse_case()
            if upper == "NEXT" and self._next.text.upper() == "VALUE":
                raise unsupported("NEXT VALUE FOR")
            if upper in _NILADIC and self._next.token_type != TokenType.L_PAREN:
                self._advance()
                return exp.Anonymous(this=upper, expressions=[])
        if self._next.token_type != TokenType.L_PAREN or token.token_type == TokenType.STRING:
            return None
        if plain and not after_dot and upper in _UNSUPPORTED:
            raise unsupported(upper)
        if token.token_type in self.RESERVED_TOKENS if any_token else token.token_type not in self.FUNC_TOKENS:
            return None
        self._advance(2)
        predicate = self.SUBQUERY_PREDICATES.get(token.token_type) if plain and not after_dot else None
        if predicate:
            wrapped = self._curr is not None and self._curr.token_type == TokenType.L_PAREN
            query = self._parse_paren() if wrapped else self._parse_select()
            self._match_r_paren()
            return predicate(this=self._required(query))
        special = _SPECIAL.get(upper) if plain and not after_dot else None
        result = special(self) if special else exp.Anonymous(this=name, expressions=self._parse_function_args())
        self._match_r_paren()
        return self._parse_window(result)

    def _parse_function_args(self, alias: bool = False) -> Any:
        if self._match(TokenType.R_PAREN, advance=False):
            return []
        return self._parse_csv(self._parse_argument)

    def _parse_argument(self) -> Any:
        if self._match(TokenType.DISTINCT):
            return exp.Distinct(expressions=[self._parse_disjunction()])
        self._match(TokenType.ALL)
        if self._match(TokenType.DEFAULT):
            return exp.Var(this="DEFAULT")
        return self._required(self._parse_disjunction())

    def _parse_csv(self, parse_method: Callable[[], Any], sep: TokenType = TokenType.COMMA) -> list[Any]:
        first = parse_method()
        if first is None:
            return []
        items = [first]
        while self._match(sep):
            items.append(self._required(parse_method()))
        return items

    def _parse_options(self) -> Any:
        """OPTION (…) advises the optimizer of another engine: read over it."""
        if not self._match(TokenType.OPTION):
            return None
        if not self._match(TokenType.L_PAREN):
            self.raise_error("Expected (")
        depth = 1
        while depth and self._curr:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            self._advance()
        if depth:
            self.raise_error("Expected )", self._prev)
        return None

    def _parse_for(self) -> Any:
        if self._match_text_seq("FOR", "XML") or self._match_text_seq("FOR", "JSON"):
            raise unsupported(f"FOR {self._prev.text.upper()}")
        return super()._parse_for()

    def _required(self, node: Any) -> Any:
        if node is None:
            self.raise_error("Expected an expression")
        return node

    def _parse_type_text(self) -> exp.Var:
        parts = [self._name()]
        while self._match(TokenType.DOT):
            parts.append("." + self._name())
        while self._curr and self._curr.token_type == TokenType.VAR and self._curr.text.upper() in _TWO_WORD_TYPES:
            parts.append(" " + self._name())
        if self._match(TokenType.L_PAREN):
            arguments = [self._name()]
            while self._match(TokenType.COMMA):
                arguments.append(self._name())
            self._match_r_paren()
            parts.append(f"({','.join(arguments)})")
        return exp.Var(this="".join(parts))

    def _name(self) -> str:
        if self._curr is None or self._curr.token_type in (TokenType.R_PAREN, TokenType.L_PAREN, TokenType.COMMA):
            self.raise_error("Expected a type")
        self._advance()
        return str(self._prev.text)

    def _parse_cast_call(self, safe: bool) -> exp.Expression:
        value = self._required(self._parse_disjunction())
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expected AS")
        return exp.Convert(this=self._parse_type_text(), expression=value, safe=safe)

    def _parse_convert_call(self, safe: bool) -> exp.Expression:
        to = self._parse_type_text()
        if not self._match(TokenType.COMMA):
            self.raise_error("Expected ,")
        value = self._required(self._parse_disjunction())
        style = self._required(self._parse_disjunction()) if self._match(TokenType.COMMA) else None
        return exp.Convert(this=to, expression=value, style=style, safe=safe)

    def _parse_parse_call(self) -> exp.Expression:
        value = self._required(self._parse_disjunction())
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expected AS")
        arguments = [value, self._parse_type_text()]
        if self._match(TokenType.USING):
            arguments.append(self._required(self._parse_disjunction()))
        return exp.Anonymous(this="PARSE", expressions=arguments)


_SPECIAL: Final[dict[str, Callable[[_Parser], exp.Expression]]] = {
    "CAST": lambda parser: parser._parse_cast_call(safe=False),
    "TRY_CAST": lambda parser: parser._parse_cast_call(safe=True),
    "CONVERT": lambda parser: parser._parse_convert_call(safe=False),
    "TRY_CONVERT": lambda parser: parser._parse_convert_call(safe=True),
    "PARSE": lambda parser: parser._parse_parse_call(),
}


class Dialect(TSQL):
    """T-SQL as the stand-in reads it."""

    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True

    class Tokenizer(TSQL.Tokenizer):
        """Only SQL Server's own keywords."""

        QUOTES: ClassVar = ["'"]
        KEYWORDS: ClassVar = {
            **{word: TSQL.Tokenizer.KEYWORDS[word] for word in (*_WORDS, *_PHRASES, *_OPERATORS)},
            **dict.fromkeys(_RESERVED, TokenType.BLOCK_END),
            "USER": TokenType.SESSION_USER,
            "!<": TokenType.GTE,
            "!>": TokenType.LTE,
        }
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = _Parser


_DIALECT: Final = Dialect()


def _tokens(text: str) -> list[Token]:
    try:
        tokens: list[Token] = _DIALECT.tokenize(text)
    except TokenError as error:
        raise SqlError(105, f"Unclosed quotation mark or comment in '{text[-60:]}'.", 15) from error
    return tokens


def _one(trees: list[exp.Expression | None]) -> exp.Expression:
    if len(trees) != 1 or trees[0] is None:
        raise syntax_error(";" if len(trees) > 1 else "")
    return trees[0]


def _run(parse: Callable[[_Parser, list[Token], str], list[exp.Expression | None]], text: str) -> exp.Expression:
    plain = without_escapes(text)
    tokens = _tokens(plain)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    try:
        return _one(parse(_DIALECT.parser(), tokens, plain))
    except ParseError as error:
        near = str((error.errors[0].get("highlight") if error.errors else "") or "")
        raise syntax_error(near) from error
    except (
        IndexError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:  # the grammar took for granted what is not there
        raise syntax_error(tokens[-1].text if tokens else "") from error
    except RecursionError as error:
        raise SqlError(191, "Some part of your SQL statement is nested too deeply.", 15) from error


_LONGEST_CACHED: Final = 20_000
"""Longer texts carry data and hardly come again."""


def _cached(parse: Callable[[str], exp.Expression]) -> Callable[[str], exp.Expression]:
    remembered = lru_cache(maxsize=2000)(parse)

    @wraps(parse)
    def run(text: str) -> exp.Expression:
        return remembered(text) if len(text) <= _LONGEST_CACHED else parse(text)

    return run


@_cached
def parse_expression_tree(text: str) -> exp.Expression:
    """Parse a scalar expression or a condition.

    Raises:
        SqlError: 102 with the token at fault, 105 for an unclosed quotation mark.
    """
    return _run(_Parser.parse_condition_text, text)


@_cached
def parse_statement(text: str) -> exp.Expression:
    """Parse a query or a data-changing statement (INSERT, UPDATE, DELETE, MERGE) that sqlglot's grammar covers.

    Raises:
        SqlError: 102, 105.
    """
    tree = _run(_Parser.parse, text)
    if isinstance(tree, exp.Command):
        raise unsupported(f"the statement {tree.name}")
    return tree


def parse_select(text: str) -> exp.Expression:
    """Parse a query: SELECT, WITH … SELECT, set operations.

    Raises:
        SqlError: 102 when it is something else or wrong, 105.
    """
    tree = parse_statement(text)
    if not isinstance(tree, exp.Query):
        raise syntax_error(text.split(None, 1)[0] if text.strip() else "")
    return tree
