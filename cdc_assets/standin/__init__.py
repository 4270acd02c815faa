"""A SQL Server counterpart on loopback for the demo, the tests and development.

It speaks TDS, runs a T-SQL subset over SQLite and does change data capture as
SQL Server does. It imports nothing of the rest of the project.

Rooms, an arrow `A → B` reads "A may import B":

    control, sample, workload → wire → engine → { capture system } → sql → { catalog sqltypes errors contract }

`docs/standin.md` lists what is supported and what was never compared with a real server.
"""
