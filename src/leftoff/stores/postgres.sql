-- name: server
SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(), current_setting('server_encoding'),
    current_setting('fsync'), current_setting('synchronous_commit')

-- name: head
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_is_in_recovery() AS standby, extract(epoch FROM clock_timestamp())::float8 AS now) AS server
LEFT JOIN leftoff.heads ON name = %s

-- name: heads
SELECT standby, name, seq, epoch, status, labels::text, owner, expires, token, created, updated, data, now
FROM (SELECT pg_is_in_recovery() AS standby, extract(epoch FROM clock_timestamp())::float8 AS now) AS server
LEFT JOIN LATERAL (
    SELECT *
    FROM leftoff.heads
    WHERE name > %(after)s::text AND name BETWEEN %(prefix)s::text AND %(last)s::text
        AND (status = %(status)s::text OR (%(status)s::text IS NULL AND status <> 'deleted'))
        AND labels @> %(labels)s::jsonb
    ORDER BY name
    LIMIT %(limit)s
) AS found ON TRUE
ORDER BY name

-- name: write
SELECT outcome, created, updated
FROM leftoff.write(
    %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %b, %s::smallint[], %s::bigint[], %b::bytea[], %s
)

-- name: finish
SELECT outcome, created, updated, set_config('idle_in_transaction_session_timeout', %s, true)
FROM leftoff.write(
    %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %b, %s::smallint[], %s::bigint[], %b::bytea[], %s
)

-- name: rows
SELECT standby, n, data
FROM (SELECT pg_is_in_recovery() AS standby) AS server
LEFT JOIN leftoff.rows ON session = (SELECT id FROM leftoff.heads WHERE name = %s) AND kind = %s
    AND n BETWEEN %s AND %s
ORDER BY n

-- name: delete
SELECT leftoff.bury(%s)
