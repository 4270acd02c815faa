"""Where statements begin and end, with semicolons and without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mssql_standin.errors import SqlError
from mssql_standin.text import tree
from mssql_standin.text.batch import parse_batch
from mssql_standin.text.lexer import Kind, tokenize


def kinds(text: str) -> list[str]:
    return [type(statement).__name__ for statement in parse_batch(text).statements]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1 SELECT 2", ["Query", "Query"]),
        ("select 1 union all select 2 except select 3", ["Query"]),
        ("select case when 1=1 then 2 else 3 end print 'x'", ["Query", "Print"]),
        ("insert t values (1) select 2", ["Change", "Query"]),
        ("insert t select 1 select 2", ["Change", "Query"]),
        ("insert t exec p 1, @a = 2 select 2", ["Change", "Query"]),
        ("insert t default values insert t (a) values (1)", ["Change", "Change"]),
        ("update t set a = 1 where b in (select 1) set nocount on", ["Change", "SetOption"]),
        ("delete top (3) from t output deleted.* where a = 1 update t set a = 1", ["Change", "Change"]),
        ("with c as (select 1 a) delete from c with d as (select 1 b) select * from d", ["Change", "Query"]),
        ("select * from a inner merge join b on 1=1 commit", ["Query", "Transaction"]),
        ("alter table t alter column a int alter table t drop column b drop table t", ["Definition"] * 3),
        (
            "create table t (a int references b (c) on delete set null on update cascade) drop table t",
            ["Definition"] * 2,
        ),
        ("drop table if exists t if 1=1 select 1", ["Definition", "If"]),
        ("IF @@TRANCOUNT = 0 BEGIN BEGIN TRAN IF @@TRANCOUNT = 2 COMMIT TRAN END SAVE TRAN [n]", ["If", "Transaction"]),
        ("set implicit_transactions off IF @@TRANCOUNT > 0 COMMIT TRAN ", ["SetOption", "If"]),
        ("set transaction isolation level  snapshot ", ["SetOption"]),
        ("sp_help_x 12, @b = 3", ["Execute"]),
        ("declare @a int = (select 1), @t table (x int, y as (x + 1)) set @a += 1", ["Declare", "Assign"]),
        (";;select 1;;", ["Query"]),
        ('select [end], "if" from [update]', ["Query"]),
        ("", []),
        ("-- only a comment\n/* /* nested */ */", []),
    ],
)
def test_statements(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("select 'open", 105),
        ("/* open", 113),
        ("begin select 1", 102),
        ("begin try select 1 end try", 40510),
        ("{call sys.sp_x(1, 2)}", 40510),
        ("while 1=1 break", 40510),
        ("end", 102),
        ("select 1 )", 102),
        ("declare x int", 102),
        ("goto there", 40510),
        ("declare c cursor for select 1", 40510),
    ],
)
def test_what_does_not_parse(text: str, number: int) -> None:
    with pytest.raises(SqlError) as raised:
        parse_batch(text)
    assert raised.value.number == number


def test_lines_are_those_of_the_first_word() -> None:
    block = parse_batch("select 1\n\n/* a\nb */ print 'x'\nselect 2")
    assert [statement.line for statement in block.statements] == [1, 4, 5]


def test_execute_parts() -> None:
    statement = parse_batch("exec @rc = [sys].sp_x @a = 1, @b = @c output, foo, default").statements[0]
    assert isinstance(statement, tree.Execute)
    assert (statement.status, statement.procedure) == ("@rc", "[sys].sp_x")
    assert [(a.name, a.expression, a.output, a.default) for a in statement.arguments] == [
        ("@a", "1", False, False),
        ("@b", "@c", True, False),
        ("", "N'foo'", False, False),
        ("", "default", False, True),
    ]


@given(
    st.lists(
        st.sampled_from(
            ["a", "[b c]", '"d"', "'it''s'", "N'x'", "0xAB", "1.5e3", "@v", "@@x", "#t", "<=", "(", ")", ".", "+="]
        )
    )
)
def test_tokens_cover_the_text(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert [token.text for token in tokenize(text)] == pieces


@given(st.text(alphabet="ab]'\"[ \n", max_size=12))
def test_quoted_names_and_strings_give_back_what_they_hold(content: str) -> None:
    bracketed = tokenize("[" + content.replace("]", "]]") + "]")
    assert [(token.kind, token.value) for token in bracketed] == [(Kind.NAME, content)]
    quoted = tokenize("N'" + content.replace("'", "''") + "'")
    assert [(token.kind, token.value) for token in quoted] == [(Kind.STRING, content)]
