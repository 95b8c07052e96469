-- For people who look with SQL: the views sessions, turns and messages. Nothing of midturn reads them.

-- A record as JSON, NULL if it is damaged. Postgres cannot show a NUL character, so it becomes U+FFFD here.
CREATE FUNCTION record(data bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN regexp_replace(convert_from(data, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- A number and a time in a record, likewise NULL if it is none.
CREATE FUNCTION whole(value jsonb) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN (value #>> '{}')::bigint;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION moment(value jsonb) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN to_timestamp((value #>> '{}')::double precision);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION items(value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE '[]' END
$$;

-- A body by its number: the row that begins last before it has it.
CREATE FUNCTION body(a_session bigint, number bigint) RETURNS jsonb
LANGUAGE sql STABLE STRICT SET search_path FROM CURRENT AS $$
    SELECT record(data) -> 'bodies' -> least(number - n, 1000000)::int
    FROM rows
    WHERE session = a_session AND kind = 1 AND n <= number
    ORDER BY n DESC
    LIMIT 1
$$;

-- An object from the number of its form and its values, NULL if they do not fit.
CREATE FUNCTION keyed(a_session bigint, stored jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT SET search_path FROM CURRENT AS $$
DECLARE
    item jsonb;
    place int := 0;
    whole_object jsonb := '{}';
BEGIN
    FOR item IN SELECT value FROM jsonb_array_elements(body(a_session, whole(stored -> 0))) LOOP
        IF jsonb_typeof(item) = 'array' THEN
            whole_object := whole_object || jsonb_build_object(item ->> 0, item -> 1);
        ELSE
            place := place + 1;
            whole_object := whole_object || jsonb_build_object(item #>> '{}', expanded(a_session, stored -> place));
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
            SELECT coalesce(jsonb_agg(expanded(a_session, value) ORDER BY place), '[]')
            FROM jsonb_array_elements(stored) WITH ORDINALITY AS item (value, place)
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

CREATE VIEW sessions AS
SELECT
    name AS session,
    CASE WHEN status <> 'deleted' AND (progress IS NULL OR progress ? 'copying') THEN 'unusable' ELSE status END AS status,
    labels,
    coalesce(whole(progress -> 'turn'), 0) AS turns,
    coalesce(whole(progress -> 'checkpoint'), 0) AS checkpoint,
    CASE WHEN expires > extract(epoch FROM clock_timestamp()) THEN owner END AS owner,
    to_timestamp(created) AS created,
    to_timestamp(updated) AS updated
FROM heads, LATERAL (SELECT CASE WHEN status <> 'deleted' THEN record(data) END AS progress) AS decoded;

CREATE VIEW turns AS
SELECT
    heads.name AS session,
    found.n AS turn,
    CASE
        WHEN done.n IS NOT NULL THEN 'done'
        WHEN found.n = whole(record(heads.data) -> 'turn') AND record(heads.data) ->> 'open' = 'running' THEN 'running'
        WHEN failure.n IS NOT NULL THEN record(failure.data) ->> 'status'
        ELSE 'running'
    END AS status,
    record(found.data) ->> 'key' AS key,
    record(failure.data) ->> 'error' AS error,
    record(done.data) ->> 'stop_reason' AS stop_reason,
    whole(record(done.data) -> 'usage' -> 0) AS prompt_tokens,
    whole(record(done.data) -> 'usage' -> 1) AS completion_tokens,
    moment(record(found.data) -> 'at') AS started,
    moment(record(coalesce(done.data, failure.data)) -> 'at') AS ended
FROM heads
JOIN rows AS found ON found.session = heads.id AND found.kind = 3
LEFT JOIN rows AS done ON done.session = heads.id AND done.kind = 4 AND done.n = found.n
LEFT JOIN LATERAL (
    SELECT rows.n, rows.data
    FROM rows
    WHERE rows.session = heads.id AND rows.kind = 5 AND whole(record(rows.data) -> 'turn') = found.n
    ORDER BY rows.n DESC
    LIMIT 1
) AS failure ON done.n IS NULL;

CREATE VIEW messages AS
SELECT
    session,
    turn,
    place,
    message ->> 'source' AS source,
    message ->> 'type' AS type,
    CASE WHEN jsonb_typeof(message -> 'content') = 'string' THEN message ->> 'content'
        ELSE (message -> 'content')::text END AS content,
    message
FROM (
    SELECT heads.name AS session, rows.n AS turn, place, keyed(heads.id, body(heads.id, whole(number))) AS message
    FROM heads
    JOIN rows ON rows.session = heads.id AND rows.kind = 4
    CROSS JOIN LATERAL jsonb_array_elements(items(record(rows.data) -> 'messages'))
        WITH ORDINALITY AS item (number, place)
) AS stored;
