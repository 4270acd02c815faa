"""Questions to the databases of other connectors, through their DB-API drivers, which are extras."""
