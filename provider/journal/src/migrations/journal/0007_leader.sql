-- Which leader writes, where several replicas share the journal: one row. Each takes a number above the one before, and a random word,
-- as a database that was set back gives out a number twice.
CREATE TABLE leader (
    id BIGINT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    word TEXT NOT NULL
);

-- 1 of a journal that was made of a backup, until somebody has heard of it.
ALTER TABLE incarnation ADD COLUMN restored BIGINT;
