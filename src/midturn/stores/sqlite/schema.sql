-- AUTOINCREMENT: an id that was forgotten and is used anew gets another number, by which every process tells the two apart.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    status TEXT NOT NULL,
    labels TEXT NOT NULL,
    owner TEXT,
    expires REAL NOT NULL,
    token TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    data BLOB NOT NULL
);

-- For lists by the time of the last change, of one status or merged from those of each status, and for counting.
CREATE INDEX sessions_changed ON sessions (status, updated, name);

-- Not WITHOUT ROWID: rows of 1 KB and more take three times the space there.
CREATE TABLE rows (
    session INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    n INTEGER NOT NULL,
    data BLOB NOT NULL
);

CREATE UNIQUE INDEX rows_key ON rows (session, kind, n);

-- Calls are removed some turns later. In a table of their own they free whole pages, which SQLite uses again; among
-- rows that stay, they would leave gaps. There is no separate index, so recording a call writes one page less. Calls
-- are short, since long values are rows of their own.
CREATE TABLE "turn_calls" (
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (session, n)
) WITHOUT ROWID;
