CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());
LOCK TABLE migrations IN EXCLUSIVE MODE
