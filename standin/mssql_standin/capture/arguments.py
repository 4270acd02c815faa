"""Arguments of a built-in procedure by their declared names."""

from collections.abc import Mapping, Sequence

from mssql_standin.contract import Parameter
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import Value


class Arguments:
    """What a caller passed, named or by position.

    Args:
        procedure: name, for messages.
        names: declared parameter names in order, without `@`.
        given: as the engine passes them.

    Raises:
        SqlError: 8145 for a name that is none of the procedure's, 8144 for too many arguments.
    """

    def __init__(self, procedure: str, names: Sequence[str], given: Mapping[str, Parameter]) -> None:
        self._procedure = procedure
        self._values: dict[str, Value] = {}
        self._given: dict[str, Parameter] = {}
        for key, parameter in given.items():
            if key.isdigit() and int(key) > len(names):
                raise SqlError(8144, f"Procedure or function {procedure} has too many arguments specified.")
            name = names[int(key) - 1] if key.isdigit() else key.removeprefix("@").casefold()
            if name not in names:
                raise SqlError(8145, f"@{name} is not a parameter for procedure {procedure}.")
            self._given[name] = parameter
            if not parameter.default:
                self._values[name] = parameter.value

    def given(self, name: str) -> bool:
        """Whether the caller passed it."""
        return name in self._values

    def text(self, name: str) -> str | None:
        """A character argument, without trailing blanks, or None."""
        value = self._values.get(name)
        if value is None:
            return None
        return value.decode("utf-16-le") if isinstance(value, bytes) else str(value).rstrip(" ")

    def required(self, name: str) -> str:
        """A character argument that must be there.

        Raises:
            SqlError: 201 when it is missing.
        """
        if name not in self._values:
            raise SqlError(
                201, f"Procedure or function '{self._procedure}' expects parameter '@{name}', which was not supplied."
            )
        return self.text(name) or ""

    def number(self, name: str, default: int | None = None) -> int | None:
        """An integer argument."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bytes):
            return int.from_bytes(value, "big")
        try:
            return int(value)
        except ValueError:
            raise SqlError(8114, "Error converting data type nvarchar to int.") from None

    def output(self, name: str, value: Value) -> None:
        """Set an output argument, if the caller wants it."""
        wanted = self._given.get(name)
        if wanted is not None and wanted.output:
            wanted.value = value

    def binary(self, name: str) -> bytes | None:
        """A binary argument."""
        value = self._values.get(name)
        if value is None or isinstance(value, bytes):
            return value
        raise SqlError(257, f"Implicit conversion to data type binary is not allowed for parameter @{name}.")
