"""`mssql-standin`: a server to start by hand."""

from pathlib import Path
from typing import Annotated

import typer

from mssql_standin.wire.prelogin import Encryption

app = typer.Typer(add_completion=False, help="A SQL Server counterpart on loopback for demo, tests and development.")


@app.command()
def main(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 14330,
    database: Annotated[list[str] | None, typer.Option(help="Database to create, with CDC on. Repeatable.")] = None,
    sample: Annotated[bool, typer.Option(help="Create the sample database SalesDb.")] = False,
    workload_rate: Annotated[float, typer.Option(help="Transactions per second on the sample; 0 for none.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    password: Annotated[
        str | None, typer.Option(envvar="STANDIN_PASSWORD", help="Password of sa; generated when missing.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Keep the data here; otherwise they go with the server.")
    ] = None,
    encryption: Annotated[Encryption, typer.Option(help="What the server offers.")] = Encryption.NOT_SUPPORTED,
    capture_latency: Annotated[float, typer.Option(help="Seconds from commit to capture; 0 captures at once.")] = 0.0,
) -> None:
    """Start the SQL Server stand-in on loopback, for demonstration, tests and development, until it is interrupted."""
    from mssql_standin.serve import Options, serve  # not for --help

    serve(
        Options(
            port, tuple(database or ()), sample, workload_rate, seed, password, directory, encryption, capture_latency
        )
    )


if __name__ == "__main__":
    app()
