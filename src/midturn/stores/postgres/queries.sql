-- name: server
SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(), current_setting('server_encoding'),
    current_setting('fsync'), current_setting('synchronous_commit')

-- name: head
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_is_in_recovery() AS standby, extract(epoch FROM clock_timestamp())::float8 AS now) AS server
LEFT JOIN midturn.heads ON name = %s

-- name: heads
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_is_in_recovery() AS standby, extract(epoch FROM clock_timestamp())::float8 AS now) AS server
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

-- name: heads_by_change
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_is_in_recovery() AS standby, extract(epoch FROM clock_timestamp())::float8 AS now) AS server
LEFT JOIN LATERAL (
    SELECT *
    FROM midturn.heads
    WHERE changed <= least(floor(%(updated)s::float8 / 8), 2147483647)::int
        AND (updated, name) < (%(updated)s::float8, %(after)s::text)
        AND name BETWEEN %(prefix)s::text AND %(last)s::text
        AND (status = %(status)s::text OR (%(status)s::text IS NULL AND status <> 'deleted'))
        AND labels @> %(labels)s::jsonb
    ORDER BY changed DESC, updated DESC, name DESC
    LIMIT %(limit)s
) AS found ON TRUE
ORDER BY updated DESC, name DESC

-- name: counts
SELECT standby, status, count
FROM (SELECT pg_is_in_recovery() AS standby) AS server
LEFT JOIN (SELECT status, count(*) FROM midturn.heads GROUP BY status) AS found ON TRUE

-- name: write
SELECT verdict, created, updated
FROM midturn.write(
    %(session)s, %(seq)s, %(after)s, %(epoch)s, %(status)s, %(labels)s::jsonb, %(owner)s, %(lease)s, %(token)s,
    %(data)b, %(kinds)s::smallint[], %(numbers)s::bigint[], %(datas)b::bytea[], %(prune)s
)

-- name: advance
WITH head AS (
    UPDATE midturn.heads
    SET seq = seq + 1, epoch = $1::bigint, status = $2, labels = $3::jsonb, owner = $4, token = $5, data = $6,
        expires = coalesce(extract(epoch FROM statement_timestamp())::float8 + $7, 0),
        updated = extract(epoch FROM statement_timestamp())::float8
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
FROM (SELECT pg_is_in_recovery() AS standby) AS server
LEFT JOIN midturn.rows ON series = (SELECT id FROM midturn.heads WHERE name = %s) * 8 + %s AND n BETWEEN %s AND %s
ORDER BY n

-- name: delete
SELECT midturn.bury(%s)
