-- name: settings
PRAGMA synchronous = FULL;
-- Without these two, macOS acknowledges before the disk has the data.
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
-- In pages: 4 MB.
PRAGMA wal_autocheckpoint = 512;
-- Detects damage before SQLite follows a damaged pointer.
PRAGMA cell_size_check = ON;
-- Overwrites deleted data with zeros. Copies can remain in pages that SQLite has rebuilt; only VACUUM removes those.
PRAGMA secure_delete = ON;

-- name: touch
-- Changes nothing, but fails on a read-only file, where BEGIN IMMEDIATE does not.
DELETE FROM sessions WHERE FALSE

-- name: head
SELECT name, seq, epoch, status, labels, owner, expires, token, created, updated, data
FROM sessions
WHERE name = ?

-- name: heads
SELECT name, seq, epoch, status, labels, owner, expires, token, created, updated, data
FROM sessions
WHERE name > :after AND name BETWEEN :prefix AND :last
    AND (status = :status OR (:status IS NULL AND status <> 'deleted'))
ORDER BY name

-- name: heads_reversed
SELECT name, seq, epoch, status, labels, owner, expires, token, created, updated, data
FROM sessions
WHERE name < :after AND name BETWEEN :prefix AND :last
    AND (status = :status OR (:status IS NULL AND status <> 'deleted'))
ORDER BY name DESC

-- name: statuses
-- Steps from each status to the next one in the index. DISTINCT would read the whole index.
WITH RECURSIVE found (status) AS (
    SELECT min(status) FROM sessions
    UNION ALL
    SELECT (SELECT min(status) FROM sessions WHERE status > found.status) FROM found WHERE found.status IS NOT NULL
)
SELECT status FROM found WHERE status <> 'deleted'

-- name: heads_by_change
-- The + keeps SQLite from using the index of names and then sorting.
SELECT name, seq, epoch, status, labels, owner, expires, token, created, updated, data
FROM sessions
WHERE status = :status AND (updated, name) < (:updated, :after) AND +name BETWEEN :prefix AND :last
ORDER BY updated DESC, name DESC

-- name: heads_by_change_reversed
SELECT name, seq, epoch, status, labels, owner, expires, token, created, updated, data
FROM sessions
WHERE status = :status AND (updated, name) > (:updated, :after) AND +name BETWEEN :prefix AND :last
ORDER BY updated, name

-- name: counts
SELECT status, count(*) FROM sessions GROUP BY status

-- name: create
INSERT INTO sessions (name, seq, epoch, status, labels, expires, token, created, updated, data)
VALUES (?, 0, 0, '', '{}', 0, '', ?, 0, x'')
ON CONFLICT (name) DO NOTHING
RETURNING id, created

-- name: found
SELECT id, created FROM sessions WHERE name = ?

-- name: swap
UPDATE sessions
SET seq = ?, epoch = ?, status = ?, labels = ?, owner = ?, expires = ?, token = ?, updated = ?, data = ?
WHERE id = ? AND name = ? AND seq = ? AND token = coalesce(?, token) AND status <> 'deleted'

-- name: status
SELECT status FROM sessions WHERE name = ?

-- name: append
INSERT INTO rows (session, kind, n, data) VALUES (?, ?, ?, ?)

-- name: append_calls
INSERT INTO turn_calls (session, n, data) VALUES (?, ?, ?)

-- name: remove
DELETE FROM rows WHERE session = ? AND kind = ? AND n >= ? AND n < ?

-- name: remove_calls
DELETE FROM turn_calls WHERE session = ? AND n >= ? AND n < ?

-- name: rows
SELECT n, data
FROM rows
WHERE session = (SELECT id FROM sessions WHERE name = ?) AND kind = ? AND n BETWEEN ? AND ?
ORDER BY n

-- name: turn_calls
SELECT n, data
FROM turn_calls
WHERE session = (SELECT id FROM sessions WHERE name = ?) AND n BETWEEN ? AND ?
ORDER BY n

-- name: bury
UPDATE sessions
SET seq = seq + 1, epoch = epoch + 1, status = 'deleted', labels = '{}', owner = NULL, expires = 0,
    token = '', updated = ?, data = ?
WHERE name = ? AND status <> 'deleted'
RETURNING id

-- name: forget
DELETE FROM sessions WHERE name = ? AND status = 'deleted'

-- name: clear
DELETE FROM rows WHERE session = ?

-- name: clear_calls
DELETE FROM turn_calls WHERE session = ?
