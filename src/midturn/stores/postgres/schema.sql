-- The heads of sessions. Half of each page stays free, so that a new head fits into the page of the old one.
CREATE TABLE heads (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    status text NOT NULL,
    labels jsonb NOT NULL,
    owner text,
    expires double precision NOT NULL,
    token text NOT NULL,
    created double precision NOT NULL,
    updated double precision NOT NULL,
    changed integer NOT NULL GENERATED ALWAYS AS (floor(updated / 8)) STORED,
    data bytea NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX heads_labels ON heads USING gin (labels jsonb_path_ops);

-- An index of "updated" would change with every write. Most writes of a turn change neither "changed" nor the status,
-- and so no index.
CREATE INDEX heads_changed ON heads ((changed + 0));  -- for lists of all statuses only, see store.py
CREATE INDEX heads_status ON heads (status, changed);

-- "series" is one number for the session and the kind of a row: the id of the head times 8, plus the kind. So an entry
-- of the index has 24 bytes instead of 32. Up to that size Postgres notices that rows are added one after the other,
-- and does not leave half of each page empty.
CREATE TABLE rows (
    series bigint NOT NULL,
    n bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (series, n)
);

-- One write: if the session's seq is the one that the writer saw, set the new head, remove the rows in the given ranges,
-- and add the new rows. Otherwise change nothing.
-- This is a function, so that the server keeps its plan, also behind a pooler that has no prepared statements.
-- The lock timeout is short: a writer that has given up must not leave its connection waiting here.
-- "repeated": this same write has already made the head, as its token shows. "later": a write after it made the head.
CREATE FUNCTION write(
    a_session text, a_seq bigint, an_after text, an_epoch bigint, a_status text, some_labels jsonb, an_owner text,
    a_lease double precision, a_token text, some_data bytea, kinds smallint[], numbers bigint[], datas bytea[],
    gone smallint[], starts bigint[], stops bigint[],
    OUT verdict text, OUT created double precision, OUT updated double precision
) LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    this_moment double precision := extract(epoch FROM clock_timestamp());
    this_session bigint;
    found_head heads;
BEGIN
    IF a_seq = 0 THEN
        LOOP
            INSERT INTO heads (name, seq, epoch, status, labels, owner, expires, token, created, updated, data)
            VALUES (
                a_session, 1, an_epoch, a_status, some_labels, an_owner,
                CASE WHEN an_owner IS NULL THEN 0 ELSE this_moment + a_lease END,
                a_token, this_moment, this_moment, some_data
            )
            ON CONFLICT (name) DO NOTHING
            RETURNING id, heads.created, heads.updated INTO this_session, write.created, write.updated;
            EXIT WHEN this_session IS NOT NULL;
            SELECT * INTO found_head FROM heads WHERE name = a_session;
            EXIT WHEN FOUND;  -- else the deleted session that was in the way has been forgotten meanwhile
        END LOOP;
    ELSE
        UPDATE heads
        SET seq = a_seq + 1, epoch = an_epoch, status = a_status, labels = some_labels, owner = an_owner,
            expires = CASE WHEN an_owner IS NULL THEN 0 ELSE this_moment + a_lease END,
            token = a_token, updated = this_moment, data = some_data
        WHERE name = a_session AND seq = a_seq AND (an_after IS NULL OR token = an_after) AND status <> 'deleted'
        RETURNING id, heads.created, heads.updated INTO this_session, write.created, write.updated;
        IF this_session IS NULL THEN
            SELECT * INTO found_head FROM heads WHERE name = a_session;
        END IF;
    END IF;
    IF this_session IS NOT NULL THEN
        write.verdict := 'written';
        FOR at IN 1 .. cardinality(gone) LOOP
            DELETE FROM rows WHERE series = this_session * 8 + gone[at] AND n >= starts[at] AND n < stops[at];
        END LOOP;
        IF cardinality(kinds) > 0 THEN
            INSERT INTO rows (series, n, data)
            SELECT this_session * 8 + a_kind, a_number, a_data
            FROM unnest(kinds, numbers, datas) AS new (a_kind, a_number, a_data);
        END IF;
        RETURN;
    END IF;
    IF found_head.seq = a_seq + 1 AND found_head.token = a_token THEN
        -- Changes nothing, but is a write: where commits wait for a standby, this one also waits for the first commit.
        UPDATE heads SET token = a_token WHERE id = found_head.id AND seq = a_seq + 1;
        write.verdict := 'repeated';
        write.created := found_head.created;
        write.updated := found_head.updated;
    ELSIF found_head.status = 'deleted' THEN
        write.verdict := 'deleted';
    ELSIF found_head.seq > a_seq + 1 THEN
        write.verdict := 'later';
    ELSE
        write.verdict := 'conflict';
    END IF;
END
$$;

-- Two statements: if the first one had to wait for a write, the second one sees the rows of that write.
CREATE FUNCTION bury(a_session text, some_data bytea, OUT verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '5s' AS $$
DECLARE
    this_session bigint;
BEGIN
    UPDATE heads
    SET seq = seq + 1, epoch = epoch + 1, status = 'deleted', labels = '{}', owner = NULL, expires = 0,
        token = '', updated = extract(epoch FROM clock_timestamp()), data = some_data
    WHERE name = a_session AND status <> 'deleted'
    RETURNING id INTO this_session;
    DELETE FROM rows WHERE series BETWEEN this_session * 8 AND this_session * 8 + 7;
    IF this_session IS NOT NULL THEN
        verdict := 'deleted';
    ELSE
        UPDATE heads SET token = '' WHERE name = a_session;  -- as above
        verdict := CASE WHEN FOUND THEN 'deleted before' ELSE 'unknown' END;
    END IF;
END
$$;

CREATE FUNCTION forget(a_session text, OUT verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '5s' AS $$
BEGIN
    DELETE FROM heads WHERE name = a_session AND status = 'deleted';
    verdict := CASE WHEN FOUND THEN 'forgotten' ELSE 'unknown' END;
    IF NOT FOUND THEN
        UPDATE heads SET token = token WHERE name = a_session;  -- as above: what this answer says has to be durable
        verdict := CASE WHEN FOUND THEN 'kept' ELSE 'unknown' END;
    END IF;
END
$$;

-- For people who read with SQL: the views sessions, turns and messages. midturn itself does not use them.

-- A record as JSON, NULL if it is damaged. Postgres cannot show a NUL character, so it becomes U+FFFD here.
CREATE FUNCTION record(data bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    RETURN regexp_replace(convert_from(data, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- A word for a record whose bytes are not JSON but compressed or sealed, NULL for any other. Only midturn can read it.
CREATE FUNCTION encoding(data bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
    SELECT CASE substr(data, 1, 1) WHEN '\x01' THEN '(compressed)' WHEN '\x02' THEN '(sealed)' END
$$;

-- A number and a time in a record, also NULL if the value is not one.
CREATE FUNCTION whole(value jsonb) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (value #>> '{}')::bigint;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION moment(value jsonb) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    RETURN to_timestamp((value #>> '{}')::double precision);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION items(value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE '[]' END
$$;

-- A body by its number: it is in the last row that begins at or before this number.
CREATE FUNCTION body(a_session bigint, number bigint) RETURNS jsonb
LANGUAGE sql STABLE STRICT SET search_path FROM CURRENT AS $$
    SELECT coalesce(record(data) -> 'bodies' -> least(number - n, 1000000)::int, to_jsonb(encoding(data)))
    FROM rows
    WHERE series = a_session * 8 + 1 AND n <= number
    ORDER BY n DESC
    LIMIT 1
$$;

-- An object from the number of its form and its values, NULL if they do not fit.
CREATE FUNCTION keyed(a_session bigint, stored jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT SET search_path FROM CURRENT AS $$
DECLARE
    item jsonb;
    position int := 0;
    whole_object jsonb := '{}';
BEGIN
    FOR item IN SELECT value FROM jsonb_array_elements(body(a_session, whole(stored -> 0))) LOOP
        IF jsonb_typeof(item) = 'array' THEN
            whole_object := whole_object || jsonb_build_object(item ->> 0, item -> 1);
        ELSE
            position := position + 1;
            whole_object := whole_object || jsonb_build_object(item #>> '{}', expanded(a_session, stored -> position));
        END IF;
    END LOOP;
    RETURN nullif(whole_object, '{}');
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- A value with its long texts back in place.
CREATE FUNCTION expanded(a_session bigint, stored jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    RETURN CASE jsonb_typeof(stored)
        WHEN 'array' THEN (
            SELECT coalesce(jsonb_agg(expanded(a_session, value) ORDER BY position), '[]')
            FROM jsonb_array_elements(stored) WITH ORDINALITY AS item (value, position)
        )
        WHEN 'object' THEN CASE jsonb_typeof(stored -> '$')
            WHEN 'number' THEN body(a_session, whole(stored -> '$'))
            WHEN 'array' THEN keyed(a_session, stored -> '$')
            ELSE (
                SELECT coalesce(jsonb_object_agg(regexp_replace(key, '^\$', ''), expanded(a_session, value)), '{}')
                FROM jsonb_each(stored)
            )
        END
        ELSE stored
    END;
END
$$;

-- The greatest number of a session's rows of a kind; 0 if it has none.
CREATE FUNCTION latest(a_session bigint, kind int) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path FROM CURRENT AS $$
    SELECT coalesce(max(n), 0) FROM rows WHERE series = a_session * 8 + kind
$$;

CREATE VIEW sessions AS
SELECT
    name AS session,
    CASE
        WHEN status <> 'deleted' AND (progress IS NULL AND NOT is_sealed OR progress ? 'copying') THEN 'unusable'
        WHEN status = 'running' AND living.owner IS NULL THEN 'interrupted'
        ELSE status
    END AS status,
    labels,
    -- Of a sealed session, only the numbers of its rows can be read here.
    CASE WHEN is_sealed THEN latest(id, 3) ELSE coalesce(whole(progress -> 'turn'), 0) END AS turns,
    CASE WHEN is_sealed THEN latest(id, 4) ELSE coalesce(whole(progress -> 'checkpoint'), 0) END AS checkpoint,
    living.owner,
    to_timestamp(created) AS created,
    to_timestamp(updated) AS updated
FROM heads,
    LATERAL (SELECT status <> 'deleted' AND encoding(data) IS NOT DISTINCT FROM '(sealed)' AS is_sealed) AS form,
    LATERAL (SELECT CASE WHEN status <> 'deleted' AND NOT is_sealed THEN record(data) END AS progress) AS decoded,
    LATERAL (SELECT CASE WHEN expires > extract(epoch FROM clock_timestamp()) THEN heads.owner END AS owner) AS living;

-- An open turn waits if its session does.
CREATE VIEW turns AS
SELECT
    heads.name AS session,
    found.n AS turn,
    CASE
        WHEN done.n IS NOT NULL THEN 'done'
        WHEN found.n = whole(record(heads.data) -> 'turn') AND record(heads.data) ->> 'open' IN ('running', 'waiting')
            THEN CASE
                WHEN heads.status = 'waiting' THEN 'waiting'
                WHEN heads.expires > extract(epoch FROM clock_timestamp()) THEN 'running'
                ELSE 'interrupted'
            END
        WHEN failure.n IS NOT NULL THEN record(failure.data) ->> 'status'
        WHEN encoding(found.data) IS NOT NULL THEN CASE
            WHEN heads.status = 'idle' OR found.n < latest(heads.id, 3) THEN encoding(found.data)  -- it was given up
            WHEN heads.status = 'running' AND heads.expires <= extract(epoch FROM clock_timestamp()) THEN 'interrupted'
            ELSE heads.status
        END
        ELSE 'interrupted'
    END AS status,
    record(found.data) ->> 'key' AS key,
    record(failure.data) ->> 'error' AS error,
    coalesce(record(done.data) ->> 'stop_reason', encoding(done.data), encoding(found.data)) AS stop_reason,
    whole(record(done.data) -> 'usage' -> 0) AS prompt_tokens,
    whole(record(done.data) -> 'usage' -> 1) AS completion_tokens,
    moment(record(found.data) -> 'at') AS started,
    moment(record(coalesce(done.data, failure.data)) -> 'at') AS ended
FROM heads
JOIN rows AS found ON found.series = heads.id * 8 + 3
LEFT JOIN rows AS done ON done.series = heads.id * 8 + 4 AND done.n = found.n
LEFT JOIN LATERAL (
    SELECT rows.n, rows.data
    FROM rows
    WHERE rows.series = heads.id * 8 + 5 AND whole(record(rows.data) -> 'turn') = found.n
    ORDER BY rows.n DESC
    LIMIT 1
) AS failure ON done.n IS NULL AND NOT (
    -- An open turn that failed before is being tried again, so its failure does not count.
    found.n = whole(record(heads.data) -> 'turn') AND record(heads.data) ->> 'open' IN ('running', 'waiting')
);

CREATE VIEW messages AS
SELECT
    session,
    turn,
    position,
    message ->> 'source' AS source,
    message ->> 'type' AS type,
    CASE WHEN message IS NULL THEN encoded
        WHEN jsonb_typeof(message -> 'content') = 'string' THEN message ->> 'content'
        ELSE (message -> 'content')::text END AS content,
    message
FROM (
    SELECT heads.name AS session, rows.n AS turn, position, keyed(heads.id, stored_at) AS message,
        coalesce(encoding(rows.data), CASE jsonb_typeof(stored_at) WHEN 'string' THEN stored_at #>> '{}' END) AS encoded
    FROM heads
    JOIN rows ON rows.series = heads.id * 8 + 4
    -- A turn whose checkpoint cannot be read here has one row, which says so.
    CROSS JOIN LATERAL (
        SELECT position, body(heads.id, whole(number)) AS stored_at
        FROM jsonb_array_elements(items(record(rows.data) -> 'messages')) WITH ORDINALITY AS item (number, position)
        UNION ALL
        SELECT NULL, NULL WHERE encoding(rows.data) IS NOT NULL
    ) AS found
) AS stored;
