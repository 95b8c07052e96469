"""Roles in Postgres: what a stranger with some rights in the database can make others run. It must be nothing."""

from contextlib import asynccontextmanager

import psycopg
import pytest
from tools.servers import PgBouncer, Postgres

import midturn
from midturn.errors import InvalidArgument, StoreUnavailable
from midturn.record.head import Kind
from midturn.stores.postgres.store import PostgresStore
from midturn.testing import a_removal, a_row, a_write

pytestmark = [pytest.mark.fault("F29"), pytest.mark.xdist_group("postgres owners")]

MALLORY = "mallory"

BECOME_SUPERUSER = f"""
CREATE FUNCTION {{schema}}.take_over() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF current_user <> '{MALLORY}' THEN
        ALTER ROLE {MALLORY} SUPERUSER;
    END IF;
    RETURN 1;
END $$;
"""
TRAPS = {
    "a view that runs a function": "CREATE VIEW {schema}.migrations AS SELECT {schema}.take_over() AS number",
    "a table with a trigger": """
        CREATE TABLE {schema}.migrations (number integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());
        CREATE FUNCTION {schema}.fire() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM {schema}.take_over(); RETURN new; END $$;
        CREATE TRIGGER fire BEFORE INSERT ON {schema}.migrations FOR EACH ROW EXECUTE FUNCTION {schema}.fire()
    """,
    "a column with a default": """
        CREATE TABLE {schema}.migrations (number integer PRIMARY KEY, applied integer DEFAULT {schema}.take_over())
    """,
    "a function in place of ours": """
        CREATE TABLE {schema}.migrations (number integer PRIMARY KEY); INSERT INTO {schema}.migrations VALUES (1);
        CREATE TABLE {schema}.heads (name text); CREATE TABLE {schema}.rows (n bigint);
        CREATE FUNCTION {schema}.write(text, bigint, text, bigint, text, jsonb, text, double precision, text, bytea,
            smallint[], bigint[], bytea[], bigint,
            OUT verdict text, OUT created double precision, OUT updated double precision) LANGUAGE plpgsql AS $$
            BEGIN PERFORM {schema}.take_over(); verdict := 'written'; created := 1; updated := 1; END $$
    """,
    "an empty schema": "SELECT 1",
}


@pytest.fixture(scope="module")
def server():
    with Postgres() as server:
        server.execute(f"CREATE ROLE {MALLORY} LOGIN PASSWORD 'mallory'")
        server.execute(f"GRANT CREATE ON DATABASE midturn TO {MALLORY}")
        yield server


@pytest.fixture
def schema(request):
    return f"t_{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def url(server, schema):
    return f"{server.url}?schema={schema}"


@pytest.fixture(autouse=True)
def still_a_stranger(server):
    yield
    taken = server.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", MALLORY) == [(True,)]
    server.execute(f"ALTER ROLE {MALLORY} NOSUPERUSER")
    assert not taken


@asynccontextmanager
async def opened(url):
    store = await PostgresStore.open(url)
    try:
        yield store
    finally:
        await store.close()


def as_role(server, role, *statements):
    with psycopg.connect(server.url_for(user=role, password=role), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


async def use(url):
    """Do with a store whatever runs a statement."""
    async with opened(url) as store:
        await store.write(a_write(labels={"a": "b"}, rows=[a_row(1)]))
        for seq in range(1, 9):  # after some times, statements are prepared
            await store.write(a_write(seq=seq, rows=[a_row(seq + 1)]))
        await store.write(a_write(seq=9, removes=[a_removal(3)]))
        async with store.transaction() as transaction:
            await transaction.write(a_write(seq=10, rows=[a_row(20)]))
        assert [row.n for row in await store.rows("case-42", Kind.BODY, start=9)] == [9, 20]
        for order in ("id", "updated"):
            for filters in ({}, {"prefix": "case", "status": "idle"}, {"labels": {"a": "c"}}):
                await store.heads(order=order, **filters)
        assert await store.counts()
        assert (await store.head("case-42")).seq == 11
        assert await store.delete("case-42")


# A schema that somebody else made


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pgbouncer"])
@pytest.mark.parametrize("trap", TRAPS)
async def test_a_schema_that_a_stranger_prepared_is_refused_before_anything_in_it_runs(server, schema, trap, pooled):
    statements = f"CREATE SCHEMA {schema};{BECOME_SUPERUSER};{TRAPS[trap]}".replace("{schema}", schema)
    as_role(server, MALLORY, statements)
    with PgBouncer(server) as pooler:
        address = f"{server.url}?schema={schema}"
        if pooled:
            address = address.replace(f":{server.port}/", f":{pooler.port}/")
        with pytest.raises(StoreUnavailable, match=rf"the schema {schema} belongs to the role 'mallory'") as caught:
            await use(address)
        assert "owner=mallory" in str(caught.value)
        with pytest.raises(StoreUnavailable, match="mallory"):
            await PostgresStore.connect(address)  # as midturn db upgrade does first


async def test_a_schema_that_a_stranger_makes_during_the_upgrade_is_refused(server, url, schema, monkeypatch):
    store = await PostgresStore.connect(url)
    as_role(server, MALLORY, f"CREATE SCHEMA {schema};{BECOME_SUPERUSER}".replace("{schema}", schema))
    as_role(server, MALLORY, TRAPS["a table with a trigger"].replace("{schema}", schema))
    with pytest.raises(StoreUnavailable, match="belongs to the role 'mallory'"):
        await store.upgrade()
    await store.close()


OBJECTS = {
    "the schema": "ALTER SCHEMA {schema} OWNER TO mallory",
    "the table {schema}.heads": "ALTER TABLE {schema}.heads OWNER TO mallory",
    "the table {schema}.migrations": "ALTER TABLE {schema}.migrations OWNER TO mallory",
    "the view {schema}.sessions": "ALTER VIEW {schema}.sessions OWNER TO mallory",
    "the function {schema}.bury": "ALTER FUNCTION {schema}.bury OWNER TO mallory",
    "the type {schema}.mood": "CREATE TYPE {schema}.mood AS ENUM ('x'); ALTER TYPE {schema}.mood OWNER TO mallory",
    "the operator {schema}.###": """
        CREATE OPERATOR {schema}.### (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);
        ALTER OPERATOR {schema}.### (int, int) OWNER TO mallory
    """,
}


@pytest.mark.parametrize("what", OBJECTS)
async def test_an_object_of_another_role_is_named_with_its_owner(server, url, schema, what):
    async with opened(url):
        pass
    server.execute(OBJECTS[what].replace("{schema}", schema))
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore.open(url)
    assert what.replace("{schema}", schema) in str(caught.value)
    assert "belongs to the role 'mallory', not to 'midturn'" in str(caught.value)
    async with midturn.open(url, owner=MALLORY) as store:
        assert await store.store.head("case-42") is None
    with pytest.raises(StoreUnavailable, match="belongs to the role 'mallory'"):
        await PostgresStore.open(f"{url}&owner=somebody")


async def test_a_trigger_with_the_function_of_a_stranger_is_refused(server, url, schema):
    async with opened(url):
        pass
    server.execute(f"GRANT USAGE ON SCHEMA {schema} TO mallory; GRANT TRIGGER ON {schema}.heads TO mallory")
    own = f"{schema}_own"
    as_role(
        server,
        MALLORY,
        f"CREATE SCHEMA {own};{BECOME_SUPERUSER}".replace("{schema}", own),
        f"CREATE FUNCTION {own}.fire() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM {own}.take_over(); RETURN new; END $$",
        f"CREATE TRIGGER fire BEFORE INSERT ON {schema}.heads FOR EACH ROW EXECUTE FUNCTION {own}.fire()",
    )
    with pytest.raises(StoreUnavailable, match=rf"the trigger {schema}\.fire belongs to the role 'mallory'"):
        await use(url)


@pytest.mark.parametrize("grantee", ["mallory", "PUBLIC"])
async def test_a_schema_in_which_strangers_may_create_is_refused(server, url, schema, grantee):
    async with opened(url):
        pass
    server.execute(f"GRANT CREATE ON SCHEMA {schema} TO {grantee}")
    with pytest.raises(StoreUnavailable, match=f"REVOKE CREATE ON SCHEMA {schema} FROM {grantee}"):
        await PostgresStore.open(url)
    server.execute(f"REVOKE CREATE ON SCHEMA {schema} FROM {grantee}")
    await use(url)


@pytest.mark.parametrize("name", ["pg_catalog", "information_schema", "pg_toast", "pg_temp", "pg_mine", "PG_Catalog"])
async def test_a_schema_of_postgres_itself_is_refused(server, name):
    with pytest.raises(InvalidArgument, match="schema= in the URL names a schema of Postgres itself"):
        await PostgresStore.open(f"{server.url}?schema={name}")


@pytest.mark.parametrize("name", ["", "a%00b", "x" * 64])
async def test_an_owner_is_the_name_of_a_role(server, name):
    with pytest.raises(InvalidArgument, match="owner= in the URL must be the name of a role"):
        await PostgresStore.open(f"{server.url}?owner={name}")


async def test_an_owner_with_an_odd_name_is_written_as_in_any_url(server, url, schema):
    server.execute(f'CREATE ROLE "the owner & co" ; CREATE SCHEMA {schema} AUTHORIZATION "the owner & co"')
    await use(f"{url}&owner=the%20owner%20%26%20co")
    async with midturn.open(url, owner="the owner & co") as store:
        assert await store.counts()


# Names that somebody else made, elsewhere

TYPES = ("text", "int2", "int4", "int8", "float8", "numeric", "jsonb")
OPERATORS = ("=", "<>", "<", ">", "<=", ">=", "@>", "/", "*", "+", "-", "->", "->>", "#>>", "||", "?")
TRAP = """
DO $do$
DECLARE left_type text; right_type text; operator text;
BEGIN
    FOREACH left_type IN ARRAY %(types)s::text[] LOOP
        FOREACH right_type IN ARRAY %(types)s::text[] LOOP
            EXECUTE format('CREATE FUNCTION public.trap(%%s, %%s) RETURNS bool LANGUAGE plpgsql AS '
                '$$ BEGIN RAISE EXCEPTION ''a trap''; END $$', left_type, right_type);
            FOREACH operator IN ARRAY %(operators)s::text[] LOOP
                EXECUTE format('CREATE OPERATOR public.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = public.trap)',
                    operator, left_type, right_type);
            END LOOP;
        END LOOP;
    END LOOP;
END $do$
"""


async def test_no_operator_of_a_stranger_is_taken_for_one_of_postgres():
    """Keep out operators of strangers: one in a schema of the search path may fit better than that of Postgres."""
    with Postgres() as server:
        async with midturn.open(server.url) as store:
            await store.store.write(a_write("case-1", data=b'{"turn": 1}', rows=[a_row(1), a_row(1, kind=Kind.TURN)]))
        with psycopg.connect(server.url, autocommit=True) as connection:
            trap = psycopg.ClientCursor(connection).mogrify(TRAP, {"types": [*TYPES], "operators": [*OPERATORS]})
            connection.execute(trap.encode())
            with pytest.raises(psycopg.errors.RaiseException, match="a trap"):
                connection.execute("SELECT 1::float8 / 8")
            await use(server.url)
            # The functions behind the views hide errors, but then the number is missing.
            found = connection.execute("SELECT session, turns FROM midturn.sessions ORDER BY session").fetchall()
            assert found == [("case-1", 1), ("case-42", 0)]
            assert connection.execute("SELECT session, turn FROM midturn.turns").fetchall() == [("case-1", 1)]
            assert connection.execute("SELECT * FROM midturn.messages").fetchall() == []


async def test_every_function_has_a_search_path_of_its_own_and_the_rights_of_its_caller(server, url, schema):
    async with opened(url):
        pass
    found = server.execute(
        "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace = to_regnamespace(%s)", schema
    )
    assert len(found) > 5
    assert [name for name, definer, _ in found if definer] == []
    paths = {
        name: [value for value in settings or () if value.startswith("search_path=")] for name, _, settings in found
    }
    assert paths == {name: [f'search_path="{schema}", pg_temp'] for name in paths}
