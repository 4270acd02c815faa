"""Variables of a batch, or of a text run by EXEC or sp_executesql."""

from dataclasses import dataclass, field

from cdc_assets.standin.catalog import Table, fold
from cdc_assets.standin.errors import SqlError, undeclared_variable
from cdc_assets.standin.sqltypes import SqlType, Value


@dataclass(slots=True)
class Variable:
    """A declared variable."""

    type: SqlType
    value: Value = None


@dataclass(slots=True)
class Frame:
    """One scope of variables."""

    variables: dict[str, Variable] = field(default_factory=dict)
    """folded name without `@` → variable."""
    tables: dict[str, Table] = field(default_factory=dict)
    """folded name with `@` → table variable."""
    signature: tuple[tuple[str, object], ...] = ()
    """Names and types, part of the key of compiled plans."""
    temporary: list[str] = field(default_factory=list)
    """Temporary tables that end with this frame."""
    depth: int = 0
    declared: set[object] = field(default_factory=set)
    """DECLARE statements that ran: in a loop they only assign."""

    def declare(self, name: str, sql_type: SqlType, value: Value = None) -> None:
        """Declare a variable.

        Raises:
            SqlError: 134 when the name is taken.
        """
        key = fold(name.removeprefix("@"))
        if key in self.variables or fold(name) in self.tables:
            raise taken(name)
        self.variables[key] = Variable(sql_type, value)
        self.signature = (*self.signature, (key, sql_type))

    def declare_table(self, name: str, table: Table) -> None:
        """Declare a table variable.

        Raises:
            SqlError: 134 when the name is taken.
        """
        if fold(name) in self.tables or fold(name.removeprefix("@")) in self.variables:
            raise taken(name)
        self.tables[fold(name)] = table
        self.signature = (*self.signature, (fold(name), table.object_id))

    def variable(self, name: str) -> Variable:
        """The variable; error 137 if it is not declared."""
        found = self.variables.get(fold(name.removeprefix("@")))
        if found is None:
            raise undeclared_variable(name)
        return found

    def values(self, names: list[str]) -> dict[str, Value]:
        """Parameters of a compiled statement."""
        return {name: self.variables[name].value for name in names}


def taken(name: str) -> SqlError:
    """134."""
    return SqlError(
        134,
        f"The variable name '{name}' has already been declared. Variable names must be unique within a query batch or stored "
        "procedure.",
        15,
    )
