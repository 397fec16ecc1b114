"""PostgreSQL databases that have the ledger's tables already, and are emptied between tests instead of made anew."""

import asyncio
import atexit
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

from carillon.ledger.postgres.ledger import PostgresLedger
from tests.support.servers import Postgres, find_binary

# A test leaves rows, connections and used numbers behind. A connection may still commit a row, so the tables are
# emptied after the last one has gone. A large table gives its pages back, because each test would scan the dead rows.
_CLEAN = """
CREATE FUNCTION pg_temp.clean(idle_ones_stay boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    place regclass;
BEGIN
    LOOP
        PERFORM pg_stat_clear_snapshot();
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
            AND NOT (idle_ones_stay AND state IS NOT DISTINCT FROM 'idle');
        EXIT WHEN NOT FOUND;
        PERFORM pg_sleep(0.002);
    END LOOP;
    FOR place IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
            AND relname NOT IN ('schema_migrations', 'schema_parts') AND pg_relation_size(oid) > 0 LOOP
        IF pg_relation_size(place) > 250000 THEN
            EXECUTE format('TRUNCATE %s CASCADE', place);
        ELSE
            EXECUTE format('DELETE FROM %s', place);
        END IF;
    END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence WHERE pg_sequence_last_value(seqrelid) IS NOT NULL;
END $$;
"""
# Whatever a statement of the data definition language changes, and which migrations are noted.
_SHAPE = """
SELECT md5(string_agg(part, ' ' ORDER BY part)) FROM (
    SELECT concat('r', oid, relname, relacl, reloptions) FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT concat('a', attrelid, '.', attnum, '.', a.xmin) FROM pg_attribute a
        JOIN pg_class r ON r.oid = attrelid WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT concat('c', oid, '.', xmin) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT concat('p', oid, '.', xmin) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT concat('d', oid, '.', xmin) FROM pg_attrdef
    UNION ALL SELECT concat('t', oid, '.', xmin) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT concat('w', oid, '.', xmin) FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT concat('n', oid, '.', xmin) FROM pg_namespace WHERE nspname !~ '^pg_'
    UNION ALL SELECT concat('s', xmin) FROM pg_db_role_setting
    UNION ALL SELECT concat('m', version, '.', xmin) FROM public.schema_migrations
    UNION ALL SELECT concat('y', part, version, '.', xmin) FROM public.schema_parts
) AS catalogue (part)
"""
_END = "the-answer-ends-here"


class Prepared(str):
    """The DSN of a database that has the ledger's tables."""

    __slots__ = ()


class Databases:
    """The prepared databases of one server."""

    template: ClassVar[str | None] = None
    """A database to copy; without it each new one is migrated."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._free: list[tuple[Prepared, _Psql, str]] = []
        self._warm: list[tuple[Prepared, _Psql, str]] = []
        """Those that somebody keeps connections to."""
        self._taken: dict[str, tuple[_Psql, str]] = {}

    def take(self, *, warm: bool = False) -> tuple[Prepared, Callable[[], None]]:
        """An empty database, and what gives it back; to a warm one, connections that wait stay open."""
        free = self._warm if warm else self._free
        dsn, psql, shape = free.pop() if free else self._new()
        self._taken[dsn] = (psql, shape)

        def give_back() -> None:
            del self._taken[dsn]
            psql.ask(f"SELECT pg_temp.clean({str(warm).lower()})")
            # The database of a test that changed more than rows is not used again.
            if psql.ask(_SHAPE) == shape:
                free.append((dsn, psql, shape))
            else:
                self._drop(dsn, psql)

        return dsn, give_back

    def prepared(self) -> str:
        """The name of a new database with the ledger's tables, to which nobody is connected."""
        dsn, psql, _ = self._new()
        psql.close()
        return dsn.rpartition("/")[2]

    def emptied(self, dsn: str) -> bool:
        """Empty a database that is taken; connections that wait stay open. False if more than rows was changed."""
        psql, shape = self._taken[dsn]
        psql.ask("SELECT pg_temp.clean(true)")
        return psql.ask(_SHAPE) == shape

    def read(self, dsn: str, statement: str) -> str:
        """What psql prints, from a database that is taken."""
        psql, _ = self._taken[dsn]
        return psql.ask(statement)

    def close(self) -> None:
        for dsn, psql, _ in (*self._free, *self._warm):
            self._drop(dsn, psql)
        self._free, self._warm = [], []

    def _new(self) -> "tuple[Prepared, _Psql, str]":
        dsn = Prepared(self._server.database(self.template or "template0"))
        if self.template is None:
            # In a thread, because a fixture of an asynchronous test may ask: its loop is running.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _migrate(dsn)).result()
        psql = _Psql(dsn)
        psql.ask("SET statement_timeout = '40s'")
        psql.ask(_CLEAN)
        return dsn, psql, psql.ask(_SHAPE)

    def _drop(self, dsn: Prepared, psql: "_Psql") -> None:
        psql.close()
        self._server.drop(dsn)


async def _migrate(dsn: str) -> None:
    ledger = await PostgresLedger.open(dsn, allow_unsafe=True)
    try:
        await ledger.migrate()
    finally:
        await ledger.aclose()


class _Psql:
    """One psql that stays: to start it and to connect costs more than what it is asked."""

    def __init__(self, dsn: str) -> None:
        options = ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]
        self._child = subprocess.Popen(
            [find_binary("psql"), *options, dsn],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        atexit.register(self.close)

    def ask(self, statement: str) -> str:
        """The lines of the answer; RuntimeError where there is none."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(f"{statement};\n\\echo {_END}\n")
            self._child.stdin.flush()
        lines: list[str] = []
        for line in self._child.stdout:
            if line.strip() == _END:
                return "".join(lines).strip()
            lines.append(line)
        raise RuntimeError(f"{statement}: {''.join(lines)}")

    def close(self) -> None:
        self._child.kill()
        # Communicating closes the pipes as well.
        self._child.communicate()
        atexit.unregister(self.close)
