"""The least that a configuration must say."""

MINIMUM = {
    "database.hostname": "db",
    "database.user": "reader",
    "database.password": "s3cret!",
    "database.names": "Sales, Stock",
    "topic.prefix": "shop",
}
