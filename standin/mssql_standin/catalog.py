"""What exists on the server: databases, schemas, tables, columns, indexes, constraints.

A `Catalog` is a value: a committed one is never changed. The transaction that runs a
definition statement works on its own copy (`Catalog.copy`) and publishes it at commit,
so readers see definitions as of the last commit and a rollback forgets the copy.
`store.storage` persists it in the SQLite file beside the rows.

All databases lie in one SQLite file: statements across databases and transactions over
several of them then need nothing special. A table is stored as SQLite table
`t<object_id>` with columns `c<column_id>`: renames touch only the catalogue, and no
T-SQL name can collide with a word of SQLite.

Names compare without letter case; lookups fold with `fold`.
"""

from collections.abc import Callable, Iterator, MutableMapping, ValuesView
from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from mssql_standin.sqltypes import DEFAULT_COLLATION, SqlType


def fold(name: str) -> str:
    """The form in which names compare."""
    return name.casefold()


@dataclass(slots=True)
class Column:
    """A column; `name` in the declared letter case, `column_id` never reused within a table."""

    name: str
    column_id: int
    type: SqlType
    nullable: bool = True
    identity: tuple[int, int] | None = None
    """(seed, increment)."""
    computed: str | None = None
    """Expression text in catalogue form."""
    persisted: bool = False
    default: str | None = None
    """Expression text in catalogue form, such as `((1))`."""
    default_name: str | None = None
    alias_type: str | None = None
    """Name of the alias type it was declared with."""
    sparse: bool = False
    rowguid: bool = False

    @property
    def sqlite(self) -> str:
        """Name of the SQLite column."""
        return f"c{self.column_id}"


@dataclass(slots=True)
class Index:
    """An index, also behind a primary key or unique constraint."""

    name: str
    index_id: int
    keys: tuple[tuple[str, bool], ...]
    """(column name, descending) in key order."""
    unique: bool = False
    clustered: bool = False
    primary_key: bool = False
    unique_constraint: bool = False
    included: tuple[str, ...] = ()
    filter: str | None = None
    object_id: int = 0
    """Of the constraint, when it is one."""


@dataclass(slots=True)
class ForeignKey:
    """A foreign key to a table of the same database."""

    name: str
    object_id: int
    columns: tuple[str, ...]
    referenced_schema: str
    referenced_table: str
    referenced_columns: tuple[str, ...]
    on_delete: str = "NO_ACTION"
    on_update: str = "NO_ACTION"


@dataclass(frozen=True, slots=True)
class ExtendedProperty:
    """What sp_addextendedproperty says about a table, or about one of its columns."""

    name: str
    value: str
    column_id: int = 0
    """0 for the table itself."""


@dataclass(slots=True)
class Table:
    """A user table, or a table of the `cdc` schema (`ms_shipped`)."""

    object_id: int
    database: str
    schema: str
    name: str
    columns: list[Column] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    created: datetime = datetime.min
    modified: datetime = datetime.min
    ms_shipped: bool = False
    next_column_id: int = 1
    tracked_by_cdc: bool = False
    truncations: int = 0
    """Identity values begin again with each; a TRUNCATE that is rolled back leaves the number, and so the values, as they were."""
    properties: tuple[ExtendedProperty, ...] = ()

    @property
    def sqlite(self) -> str:
        """Name of the SQLite table; temporary tables override it by their object id too."""
        return f"t{self.object_id}"

    def column(self, name: str) -> Column | None:
        """The column of that name, or None."""
        wanted = fold(name)
        return next((column for column in self.columns if fold(column.name) == wanted), None)

    @property
    def primary_key(self) -> Index | None:
        """The primary key's index, or None."""
        return next((index for index in self.indexes if index.primary_key), None)

    @property
    def clustered_key(self) -> Index | None:
        """The clustered index, or None for a heap."""
        return next((index for index in self.indexes if index.clustered), None)

    def __str__(self) -> str:
        return f"{self.database}.{self.schema}.{self.name}"


@dataclass(slots=True)
class AliasType:
    """CREATE TYPE … FROM."""

    schema: str
    name: str
    user_type_id: int
    base: SqlType
    nullable: bool = True


class Tables(MutableMapping[tuple[str, str], Table]):
    """(folded schema, folded name) → table.

    The tables of a copied catalogue are the original's until somebody asks for them: then they are copied, since who asks
    may change them. So a definition statement costs what it touches, not what there is.
    """

    def __init__(self, original: "Tables | None" = None) -> None:
        self._tables: dict[tuple[str, str], Table] = dict(original._tables) if original is not None else {}
        self._shared = set(self._tables)

    def freeze(self) -> None:
        """Nobody changes these tables any more: give them out as they are."""
        self._shared.clear()

    def shared(self) -> ValuesView[Table]:
        """All tables, for reading only."""
        return self._tables.values()

    def __getitem__(self, place: tuple[str, str]) -> Table:
        table = self._tables[place]
        if place in self._shared:
            self[place] = table = _copied_table(table)
        return table

    def __setitem__(self, place: tuple[str, str], table: Table) -> None:
        self._shared.discard(place)
        self._tables[place] = table

    def __delitem__(self, place: tuple[str, str]) -> None:
        self._shared.discard(place)
        del self._tables[place]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, place: object) -> bool:
        return place in self._tables


@dataclass(frozen=True, slots=True)
class ProcedureParameter:
    """A declared parameter of a user procedure; type and default as text."""

    name: str
    type: str
    default: str | None
    output: bool


@dataclass(slots=True)
class UserProcedure:
    """A procedure; a changed one is a new object."""

    shape: Table
    """Its id and name, as a table without columns."""
    text: str
    """The whole statement that defines it."""
    parameters: list[ProcedureParameter]
    body: str


@dataclass(frozen=True, slots=True)
class RecoveryFork:
    """A restore: from there on the log is another one."""

    point: str
    """Where it begins, in hexadecimal digits: above every LSN before it."""
    guid: str
    """Its 16 bytes, likewise."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A login, a user or a role; a changed one is a new object."""

    name: str
    principal_id: int
    kind: str
    """`S` for a login or user, `R` for a role."""
    login: str = ""
    """Of a user: the folded name of its login."""
    password: str = ""
    """Of a login: what `logins.check` compares."""
    default_database: str = "master"
    members: tuple[str, ...] = ()
    """Of a role: folded names."""
    created: str = ""
    """As ISO text."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What was granted or denied to a principal."""

    grantee: str
    """Folded name."""
    action: str
    kind: str = "DATABASE"
    """`SERVER`, `DATABASE`, `SCHEMA` or `OBJECT`."""
    target: str = ""
    """Folded name of the schema, or number of the object."""
    deny: bool = False

    def covers(self, schema: str, object_id: int) -> bool:
        """Whether it is about an object of a schema, or about what holds it."""
        if self.kind == "OBJECT":
            return bool(object_id) and self.target == str(object_id)
        return self.kind != "SCHEMA" or self.target == fold(schema)


@dataclass(slots=True)
class Security:
    """Who there is and what they may do, on the server or in a database."""

    principals: dict[str, Principal] = field(default_factory=dict)
    """By folded name."""
    permissions: list[Permission] = field(default_factory=list)

    def add(self, name: str, kind: str, created: datetime, login: str = "", first: int = 6) -> Principal:
        """A new principal with the next free number from `first` on (5 is the user `cdc`)."""
        taken = [one.principal_id for one in self.principals.values() if first <= one.principal_id < 16384]
        made = Principal(name, max([first - 1, *taken]) + 1, kind, login, created=created.isoformat())
        self.principals[fold(name)] = made
        return made

    def copy(self) -> "Security":
        """A copy for a transaction that changes it."""
        return Security(dict(self.principals), list(self.permissions))


DATABASE_STATES: Final = {"ONLINE": 0, "OFFLINE": 6}
OPTIONS: Final = {
    "RECOVERY": ("FULL", "BULK_LOGGED", "SIMPLE"),
    "COMPATIBILITY_LEVEL": ("160", "150", "140", "130", "120", "110", "100"),
    "PAGE_VERIFY": ("CHECKSUM", "TORN_PAGE_DETECTION", "NONE"),
    "DELAYED_DURABILITY": ("DISABLED", "ALLOWED", "FORCED"),
    "AUTO_CREATE_STATISTICS": ("ON", "OFF"),
    "AUTO_UPDATE_STATISTICS": ("ON", "OFF"),
    **dict.fromkeys(
        ("AUTO_CLOSE", "AUTO_SHRINK", "AUTO_UPDATE_STATISTICS_ASYNC", "ANSI_NULLS", "QUOTED_IDENTIFIER", "TRUSTWORTHY",
         "QUERY_STORE", "ACCELERATED_DATABASE_RECOVERY", "ALLOW_SNAPSHOT_ISOLATION", "READ_COMMITTED_SNAPSHOT"),
        ("OFF", "ON"),
    ),
}  # fmt: skip
"""What ALTER DATABASE … SET sets and `sys.databases` tells: option → values, the default first."""


@dataclass(slots=True)
class Database:
    """A database with its tables."""

    name: str
    database_id: int
    collation: str = DEFAULT_COLLATION
    created: datetime = datetime.min
    options: dict[str, str] = field(default_factory=dict)
    """Those of `OPTIONS` that were set."""
    cdc_enabled: bool = False
    state: str = "ONLINE"
    """A key of `DATABASE_STATES`."""
    recovery_forks: list[RecoveryFork] = field(default_factory=list)
    """One for each restore."""
    schemas: dict[str, int] = field(default_factory=lambda: {"dbo": 1, "INFORMATION_SCHEMA": 3, "sys": 4})
    """name in declared case → schema_id."""
    tables: Tables = field(default_factory=Tables)
    alias_types: list[AliasType] = field(default_factory=list)
    procedures: list[UserProcedure] = field(default_factory=list)
    security: Security = field(default_factory=Security)
    """Users, roles and their permissions."""

    def option(self, name: str) -> str:
        """Value of one of `OPTIONS`."""
        return self.options.get(name) or OPTIONS[name][0]

    def procedure(self, schema: str, name: str) -> UserProcedure | None:
        """The user procedure of that name, or None."""
        wanted = fold(schema), fold(name)
        return next((p for p in self.procedures if (fold(p.shape.schema), fold(p.shape.name)) == wanted), None)

    def table(self, schema: str, name: str) -> Table | None:
        """The table of that name, or None."""
        return self.tables.get((fold(schema), fold(name)))

    def shape(self, schema: str, name: str) -> Table | None:
        """The table of that name, or what a procedure of that name is in the catalogue."""
        procedure = self.procedure(schema, name)
        return self.table(schema, name) or (procedure.shape if procedure else None)

    def table_by_id(self, object_id: int) -> Table | None:
        """The table of that object id, or None."""
        found = next((table for table in self.tables.shared() if table.object_id == object_id), None)
        return None if found is None else self.table(found.schema, found.name)


@dataclass(slots=True)
class Catalog:
    """All databases; `version` changes with every published definition and keys plan caches."""

    databases: dict[str, Database] = field(default_factory=dict)
    """folded name → database."""
    version: int = 0
    next_object_id: int = 885578193
    """Object ids look like SQL Server's; increased by 16 for each object."""
    security: Security = field(
        default_factory=lambda: Security(permissions=[Permission("public", "VIEW ANY DATABASE", "SERVER")])
    )
    """Logins, server roles and their permissions."""

    def database(self, name: str) -> Database | None:
        """The database of that name, or None."""
        return self.databases.get(fold(name))

    def new_object_id(self) -> int:
        """A fresh object id."""
        self.next_object_id += 16
        return self.next_object_id

    def freeze(self) -> None:
        """This catalogue is committed and never changes again."""
        for database in self.databases.values():
            database.tables.freeze()

    def copy(self) -> "Catalog":
        """A copy for a transaction that changes definitions; what it does not touch is shared (see `Tables`)."""
        databases = {name: _copied(database) for name, database in self.databases.items()}
        return Catalog(databases, self.version, self.next_object_id, self.security.copy())


def _values(kind: type) -> Callable[[object], tuple[Any, ...]]:
    """Reads all fields of a dataclass in order: copying by constructor is ten times as fast as `copy.deepcopy`."""
    return attrgetter(*(declared.name for declared in fields(kind)))


_COLUMN, _INDEX, _FOREIGN_KEY = (_values(kind) for kind in (Column, Index, ForeignKey))
_ALIAS, _TABLE, _DATABASE = (_values(kind) for kind in (AliasType, Table, Database))


def _copied(database: Database) -> Database:
    made = Database(*_DATABASE(database))
    made.schemas, made.options = dict(database.schemas), dict(database.options)
    made.alias_types = [AliasType(*_ALIAS(alias)) for alias in database.alias_types]
    made.tables = Tables(database.tables)
    made.procedures = list(database.procedures)
    made.recovery_forks, made.security = list(database.recovery_forks), database.security.copy()
    return made


def _copied_table(table: Table) -> Table:
    made = Table(*_TABLE(table))
    made.columns = [Column(*_COLUMN(column)) for column in table.columns]
    made.indexes = [Index(*_INDEX(index)) for index in table.indexes]
    made.foreign_keys = [ForeignKey(*_FOREIGN_KEY(key)) for key in table.foreign_keys]
    return made
