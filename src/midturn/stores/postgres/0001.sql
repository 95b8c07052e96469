-- The heads of sessions. Half of each page stays free, so that a new head finds its place beside the old one.
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
    data bytea NOT NULL
) WITH (fillfactor = 50);

-- Not of status, which every write changes.
CREATE INDEX heads_labels ON heads USING gin (labels jsonb_path_ops);

CREATE TABLE rows (
    session bigint NOT NULL,
    kind smallint NOT NULL,
    n bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (session, kind, n)
);

-- One write: a new head and new rows if the session's seq is the one that the writer saw, else nothing.
-- A function, so that its plan is kept by the server, also behind a pooler that knows no prepared statements.
-- Locks are not waited for for long: a writer that has given up must not leave its connection waiting here.
-- "repeated": the head is the one that this write has made, known by its token. "later": it is of a write after that.
CREATE FUNCTION write(
    a_session text, a_seq bigint, an_after text, an_epoch bigint, a_status text, some_labels jsonb, an_owner text,
    a_lease double precision, a_token text, some_data bytea, kinds smallint[], numbers bigint[], datas bytea[],
    OUT outcome text, OUT created double precision, OUT updated double precision
) LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    this_moment double precision := extract(epoch FROM clock_timestamp());
    this_session bigint;
    found_head heads;
BEGIN
    IF a_seq = 0 THEN
        INSERT INTO heads (name, seq, epoch, status, labels, owner, expires, token, created, updated, data)
        VALUES (
            a_session, 1, an_epoch, a_status, some_labels, an_owner,
            CASE WHEN an_owner IS NULL THEN 0 ELSE this_moment + a_lease END,
            a_token, this_moment, this_moment, some_data
        )
        ON CONFLICT (name) DO NOTHING
        RETURNING id, heads.created, heads.updated INTO this_session, write.created, write.updated;
    ELSE
        UPDATE heads
        SET seq = a_seq + 1, epoch = an_epoch, status = a_status, labels = some_labels, owner = an_owner,
            expires = CASE WHEN an_owner IS NULL THEN 0 ELSE this_moment + a_lease END,
            token = a_token, updated = this_moment, data = some_data
        WHERE name = a_session AND seq = a_seq AND (an_after IS NULL OR token = an_after) AND status <> 'deleted'
        RETURNING id, heads.created, heads.updated INTO this_session, write.created, write.updated;
    END IF;
    IF this_session IS NOT NULL THEN
        write.outcome := 'written';
        IF cardinality(kinds) > 0 THEN
            INSERT INTO rows (session, kind, n, data)
            SELECT this_session, a_kind, a_number, a_data
            FROM unnest(kinds, numbers, datas) AS new (a_kind, a_number, a_data);
        END IF;
        RETURN;
    END IF;
    SELECT * INTO found_head FROM heads WHERE name = a_session;
    IF found_head.seq = a_seq + 1 AND found_head.token = a_token THEN
        -- Changes nothing, but is a write: where commits wait for a standby, this one waits for the first one's, too.
        UPDATE heads SET token = a_token WHERE id = found_head.id AND seq = a_seq + 1;
        write.outcome := 'repeated';
        write.created := found_head.created;
        write.updated := found_head.updated;
    ELSIF found_head.status = 'deleted' THEN
        write.outcome := 'deleted';
    ELSIF found_head.seq > a_seq + 1 THEN
        write.outcome := 'later';
    ELSE
        write.outcome := 'conflict';
    END IF;
END
$$;

-- Two statements: the second one sees what a write added for which the first one had to wait.
CREATE FUNCTION bury(a_session text, OUT outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '5s' AS $$
DECLARE
    this_session bigint;
BEGIN
    UPDATE heads
    SET seq = seq + 1, epoch = epoch + 1, status = 'deleted', labels = '{}', owner = NULL, expires = 0,
        token = '', updated = extract(epoch FROM clock_timestamp()), data = ''
    WHERE name = a_session AND status <> 'deleted'
    RETURNING id INTO this_session;
    DELETE FROM rows WHERE session = this_session;
    IF this_session IS NOT NULL THEN
        outcome := 'deleted';
    ELSE
        UPDATE heads SET token = '' WHERE name = a_session;  -- as above
        outcome := CASE WHEN FOUND THEN 'deleted before' ELSE 'unknown' END;
    END IF;
END
$$;
