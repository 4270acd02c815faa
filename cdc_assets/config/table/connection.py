"""Properties of the connection and of what is captured (spec debezium-sqlserver §1, §4.6)."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property, Status

ENCRYPT = kinds.choice(
    "no", "yes", "strict", aliases={"false": "no", "optional": "no", "true": "yes", "mandatory": "yes"}
)

CONNECTION = (
    Property("name", kinds.FILLED, None, "Name of the capture; the topic prefix if absent.", "capture.name"),
    Property("database.hostname", kinds.HOST, None, "Address of the server.", "connection.host", required=True),
    Property(
        "database.port",
        kinds.integer(1, 65535),
        None,
        "TCP port; 1433 if absent. With `database.instance` it overrides the port that SQL Server Browser returns for the instance.",
        "connection.port",
    ),
    Property(
        "database.instance",
        kinds.TEXT,
        "",
        "Named instance; SQL Server Browser (UDP 1434) is asked for its port, unless `database.port` is given.",
        "connection.instance",
    ),
    Property(
        "database.user",
        kinds.TEXT,
        "",
        "SQL Server login; leave empty with an authentication scheme.",
        "connection.user",
    ),
    Property(
        "database.password",
        kinds.TEXT,
        "",
        "Password of the login. Write `${env:NAME}` or `${file:/path}`, so that it is not in the file.",
        "connection.password",
        secret=True,
    ),
    Property("database.names", kinds.NAMES, None, "Databases to capture.", "connection.databases", required=True),
    Property(
        "database.query.timeout.ms",
        kinds.whole_seconds(),
        "600000",
        "Time limit of a statement, rounded up to seconds; 0 waits for ever.",
        "connection.query_timeout_s",
    ),
    Property(
        "connection.validation.timeout.ms",
        kinds.whole_seconds(1),
        "15000",
        "Time limit of a login, rounded up to seconds.",
        "connection.login_timeout_s",
        note="Debezium waits 60000.",
    ),
    Property(
        "driver.encrypt",
        ENCRYPT,
        "yes",
        "Encryption of the connection: `no`, `yes` (certificate checked unless trusted) or `strict` (TDS 8). "
        "`false` and `true` mean `no` and `yes`; `database.encrypt` is the older name.",
        "connection.encrypt",
    ),
    Property(
        "driver.trustServerCertificate",
        kinds.BOOLEAN,
        "false",
        "Accept any certificate. `database.trustServerCertificate` is the older name.",
        "connection.trust_server_certificate",
    ),
    Property(
        "driver.authentication",
        kinds.FILLED,
        None,
        "Authentication scheme of the driver in place of user and password, such as `ActiveDirectoryMsi`.",
    ),
    Property(
        "driver.applicationName",
        kinds.SYSNAME,
        "cdc-assets",
        "Name that the server shows for the capture's sessions: `program_name` in sys.dm_exec_sessions.",
        "connection.application",
    ),
    Property(
        "driver.<option>",
        kinds.TEXT,
        None,
        "Further options of the driver under their JDBC or ODBC names: applicationIntent, hostNameInCertificate, "
        "serverCertificate, multiSubnetFailover, packetSize, connectRetryCount, connectRetryInterval, ipAddressPreference, "
        "keepAlive, keepAliveInterval, serverSpn. Options that only the JDBC driver knows are ignored.",
    ),
    Property(
        "odbc.driver",
        kinds.LIBRARY,
        None,
        "ODBC driver to use: its registered name or the path of its shared object. "
        "Absent: the registered ODBC Driver 18, else the one that comes with mssql-python.",
        note="Only in cdc-assets.",
    ),
)

SHOWN = (
    Property(
        "custom.sanitize.pattern",
        kinds.REGEX,
        "",
        "Regular expression of property names whose values are not shown, in errors and by `cdc-assets properties --config`; "
        "it may match any part of the name. Passwords, salts and options that may hold secrets are never shown.",
    ),
)

FILTERS = (
    Property("schema.include.list", kinds.REGEXES, "", "Schemas to capture.", "filters.schema_include"),
    Property("schema.exclude.list", kinds.REGEXES, "", "Schemas to leave out.", "filters.schema_exclude"),
    Property("table.include.list", kinds.REGEXES, "", "Tables to capture, as `schema.table`.", "filters.table_include"),
    Property(
        "table.exclude.list", kinds.REGEXES, "", "Tables to leave out, as `schema.table`.", "filters.table_exclude"
    ),
    Property("table.ignore.builtin", kinds.BOOLEAN, "true", "Leave out system tables.", "filters.ignore_builtin"),
    Property(
        "column.include.list",
        kinds.REGEXES,
        "",
        "Columns of event values, as `schema.table.column`.",
        "events.column_include",
    ),
    Property(
        "column.exclude.list",
        kinds.REGEXES,
        "",
        "Columns left out of event values, as `schema.table.column`; a key keeps its columns.",
        "events.column_exclude",
    ),
    Property(
        "internal.capture.instance.include.list",
        kinds.REGEXES,
        "",
        "Capture instances to use, by name.",
        "streaming.instance_include",
    ),
    Property(
        "internal.capture.instance.exclude.list",
        kinds.REGEXES,
        "",
        "Capture instances to leave out, by name.",
        "streaming.instance_exclude",
    ),
    Property(
        "guardrail.collections.max",
        kinds.integer(0),
        "0",
        "Maximum number of tables; 0 sets no limit. All tables of the databases count, or only captured ones with `schema.history.internal.store.only.captured.tables.ddl`.",
        "filters.max_tables",
    ),
    Property(
        "guardrail.collections.limit.action",
        kinds.choice("warn", "fail"),
        "warn",
        "Reaction if the limit is exceeded.",
        "filters.limit_action",
    ),
    Property(
        "change.column.filter.override",
        kinds.BOOLEAN,
        "false",
        "Include columns in snapshots that the capture instance does not capture.",
        status=Status.REFUSED,
        reason="rows of snapshot and stream would differ in structure",
    ),
)

EXCLUSIVE = (
    ("schema.include.list", "schema.exclude.list"),
    ("table.include.list", "table.exclude.list"),
    ("column.include.list", "column.exclude.list"),
    ("internal.capture.instance.include.list", "internal.capture.instance.exclude.list"),
)
"""Pairs of which at most one may be given."""

DRIVER_OPTIONS = {
    "applicationintent": "ApplicationIntent",
    "hostnameincertificate": "HostnameInCertificate",
    "servercertificate": "ServerCertificate",
    "multisubnetfailover": "MultiSubnetFailover",
    "packetsize": "PacketSize",
    "connectretrycount": "ConnectRetryCount",
    "connectretryinterval": "ConnectRetryInterval",
    "ipaddresspreference": "IpAddressPreference",
    "keepalive": "KeepAlive",
    "keepaliveinterval": "KeepAliveInterval",
    "serverspn": "ServerSPN",
    "trusted_connection": "Trusted_Connection",
}
"""Name of a `driver.*` option in lower case → ODBC keyword that both drivers accept."""

JDBC_ONLY = frozenset(
    {
        "calcbigdecimalprecision", "cachebulkcopymetadata", "cancelquerytimeout", "clientcertificate",
        "clientkey", "clientkeypassword", "columnencryptionsetting", "datetimeparametertype", "delayloadinglobs",
        "disablestatementpooling", "enableprepareonfirstpreparedstatementcall", "fips", "gsscredential", "iamtoken",
        "instancename", "jaasconfigurationname", "lastupdatecount", "locktimeout", "logintimeout", "maxresultbuffer",
        "preparemethod", "querytimeout", "quotedidentifier", "replication", "responsebuffering",
        "retryconn", "retryexec", "selectmethod", "sendstringparametersasunicode",
        "sendtemporaldatatypesasstringforbulkcopy", "sendtimeasdatetime", "servernameasace",
        "serverpreparedstatementdiscardthreshold", "socketfactoryclass", "socketfactoryconstructorarg", "sockettimeout",
        "sslprotocol", "statementpoolingcachesize", "transparentnetworkipresolution",
        "trustmanagerclass", "trustmanagerconstructorarg", "usebulkcopyforbatchinsert", "usedefaultgsscredential",
        "usefmtonly", "workstationid", "xopenstates",
    }
)  # fmt: skip
"""Options in lower case that only Microsoft's JDBC driver has; but for one they do not affect the data that are read."""

ENCRYPTED = "columnencryptionsetting"
ENCRYPTED_REASON = "columns under Always Encrypted are not decrypted here; leave them out with column.exclude.list"
"""What it means that this one is ignored."""

JAVA_STORES = ("truststore", "keystore")
"""Beginnings of the JDBC driver's options, in lower case, that name stores of certificates of the JVM."""

STORE_REASON = (
    "stores of the JVM are not read; the connection trusts the operating system's certificates, one certificate file with "
    "driver.serverCertificate, or any with driver.trustServerCertificate"
)
"""Why they are ignored, and what takes their place."""
