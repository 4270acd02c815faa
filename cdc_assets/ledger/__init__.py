"""The recorded state of a capture: windows, the state of each table, requests. State changes only here."""
