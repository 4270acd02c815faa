"""A SQL Server counterpart on loopback for the demo, the tests and development.

It speaks TDS, runs a T-SQL subset over SQLite and does change data capture as
SQL Server does. It imports nothing of the rest of the project.

Rooms, an arrow `A → B` reads "A may import B":

    control → { wire engine }        wire → store        queries → system → capture → sql
    engine → batches → definitions → changes → queries → { store text }        store → sql
    all → { catalog contract errors rights sqltypes }, which know no room

What a room needs of a session, of the server and of the interpreter stands in its `ports`; each protocol adds to the one of
the room below, and `engine.session` and `batches.interpreter` fulfil all of them.

`README.md` lists what is supported and what was never compared with a real server.
"""
