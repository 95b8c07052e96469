-- The search path of these statements is that of the role. Somebody may have made a function or an operator in one of
-- its schemas that fits better than that of Postgres. So functions are qualified, and operators get values of exactly
-- the types that Postgres has an operator for: 8::float8 and not 8.

-- name: server
SELECT pg_catalog.current_setting('server_version_num')::int / 10000, pg_catalog.pg_is_in_recovery(),
    pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('fsync'),
    pg_catalog.current_setting('synchronous_commit')

-- name: strangers
-- What belongs to a role other than this one and the trusted one: the schema first, then what is in it. An index, a
-- sequence of a column and the row type of a table belong to the owner of the table.
WITH space AS (
    SELECT oid, nspname, nspowner, coalesce(nspacl, pg_catalog.acldefault('n'::"char", nspowner)) AS rights
    FROM pg_catalog.pg_namespace
    WHERE nspname = %(schema)s::name
), found (place, kind, name, owner) AS (
    SELECT 1, 'schema', nspname, nspowner FROM space
    UNION ALL
    SELECT 2, CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'c' THEN 'type' ELSE 'table' END,
        relname, relowner
    FROM pg_catalog.pg_class JOIN space ON relnamespace = space.oid
    WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'c')
    UNION ALL
    SELECT 3, 'function', proname, proowner FROM pg_catalog.pg_proc JOIN space ON pronamespace = space.oid
    UNION ALL
    SELECT 4, 'operator', oprname, oprowner FROM pg_catalog.pg_operator JOIN space ON oprnamespace = space.oid
    UNION ALL
    SELECT 5, 'type', typname, typowner FROM pg_catalog.pg_type JOIN space ON typnamespace = space.oid
    WHERE typtype <> 'c' AND typcategory <> 'A'
    UNION ALL
    SELECT 6, 'trigger', tgname, proowner
    FROM pg_catalog.pg_trigger
    JOIN pg_catalog.pg_class ON pg_class.oid = tgrelid
    JOIN space ON relnamespace = space.oid
    JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
    WHERE NOT tgisinternal
    UNION ALL
    SELECT 7, 'grant', nspname, granted.grantee
    FROM space, pg_catalog.aclexplode(rights) AS granted
    WHERE granted.privilege_type = 'CREATE'
)
SELECT kind, name, coalesce(rolname, 'PUBLIC'), current_user
FROM found LEFT JOIN pg_catalog.pg_roles ON pg_roles.oid = owner
WHERE rolname IS NULL OR (rolname <> current_user AND rolname <> coalesce(%(owner)s::name, current_user))
ORDER BY place, name

-- name: head
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby, extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now) AS server
LEFT JOIN midturn.heads ON name = %s

-- name: heads
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby, extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now) AS server
LEFT JOIN LATERAL (
    SELECT *
    FROM midturn.heads
    WHERE name > %(after)s::text AND name BETWEEN %(prefix)s::text AND %(last)s::text
        AND (status = %(status)s::text OR (%(status)s::text IS NULL AND status <> 'deleted'))
        AND labels @> %(labels)s::jsonb
    ORDER BY name
    LIMIT %(limit)s
) AS found ON TRUE
ORDER BY name

-- name: heads_reversed
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby, extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now) AS server
LEFT JOIN LATERAL (
    SELECT *
    FROM midturn.heads
    WHERE name < %(after)s::text AND name BETWEEN %(prefix)s::text AND %(last)s::text
        AND (status = %(status)s::text OR (%(status)s::text IS NULL AND status <> 'deleted'))
        AND labels @> %(labels)s::jsonb
    ORDER BY name DESC
    LIMIT %(limit)s
) AS found ON TRUE
ORDER BY name DESC

-- name: heads_by_change
-- The store replaces the words in braces, so that lists of one status and of all have plans of their own.
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby, extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now) AS server
LEFT JOIN LATERAL (
    SELECT *
    FROM midturn.heads
    WHERE {status}
        AND {changed} <= greatest(least(pg_catalog.floor(%(updated)s::float8 / 8::float8), 2147483647), -2147483648)::int
        AND (updated, name) < (%(updated)s::float8, %(after)s::text)
        AND name BETWEEN %(prefix)s::text AND %(last)s::text
        AND labels @> %(labels)s::jsonb
    ORDER BY {changed} DESC, updated DESC, name DESC
    LIMIT %(limit)s
) AS found ON TRUE
ORDER BY updated DESC, name DESC

-- name: heads_by_change_reversed
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby, extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now) AS server
LEFT JOIN LATERAL (
    SELECT *
    FROM midturn.heads
    WHERE {status}
        AND {changed} >= greatest(least(pg_catalog.floor(%(updated)s::float8 / 8::float8), 2147483647), -2147483648)::int
        AND (updated, name) > (%(updated)s::float8, %(after)s::text)
        AND name BETWEEN %(prefix)s::text AND %(last)s::text
        AND labels @> %(labels)s::jsonb
    ORDER BY {changed}, updated, name
    LIMIT %(limit)s
) AS found ON TRUE
ORDER BY updated, name

-- name: counts
SELECT standby, status, count
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby) AS server
LEFT JOIN (SELECT status, pg_catalog.count(*) FROM midturn.heads GROUP BY status) AS found ON TRUE

-- name: write
SELECT verdict, created, updated
FROM midturn.write(
    %(session)s, %(seq)s, %(after)s, %(epoch)s, %(status)s, %(labels)s::jsonb, %(owner)s, %(lease)s, %(token)s,
    %(data)b, %(kinds)s::smallint[], %(numbers)s::bigint[], %(datas)b::bytea[], %(gone)s::smallint[], %(starts)s::bigint[],
    %(stops)s::bigint[]
)

-- name: advance
WITH head AS (
    UPDATE midturn.heads
    SET seq = seq + 1, epoch = $1::bigint, status = $2, labels = $3::jsonb, owner = $4, token = $5, data = $6,
        expires = coalesce(extract(epoch FROM pg_catalog.statement_timestamp())::float8 + $7, 0),
        updated = extract(epoch FROM pg_catalog.statement_timestamp())::float8
    WHERE name = $8 AND seq = $9::bigint AND token = coalesce($10, token) AND status <> 'deleted'
    RETURNING id, created, updated
), added AS (
    INSERT INTO midturn.rows (series, n, data)
    SELECT id * 8 + new.kind, new.n, new.data
    FROM head, (VALUES ($11::bigint, $12::bigint, $13::bytea)) AS new (kind, n, data)
)
SELECT created, updated FROM head

-- name: rows
SELECT standby, n, data
FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby) AS server
LEFT JOIN midturn.rows ON series = (SELECT id FROM midturn.heads WHERE name = %s) * 8 + %s AND n BETWEEN %s AND %s
ORDER BY n

-- name: delete
SELECT midturn.bury(%s, %b)

-- name: forget
SELECT midturn.forget(%s)
