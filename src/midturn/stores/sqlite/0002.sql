-- Calls are removed some turns later. In a table of their own they leave whole pages behind, which are used again;
-- between rows that stay, they would leave gaps that stay too.
CREATE TABLE turn_calls (
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    data BLOB NOT NULL
);

CREATE UNIQUE INDEX turn_calls_key ON turn_calls (session, n);

INSERT INTO turn_calls (session, n, data) SELECT session, n, data FROM rows WHERE kind = 7;

DELETE FROM rows WHERE kind = 7;
