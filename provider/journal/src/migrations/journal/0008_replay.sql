-- What the engine changed in a plan before it was written: `withheld` are checksums of actions that were left out because they were under
-- way, `added` how many of the last notes are the engine's own. Empty where it changed nothing; rows from before have none.
ALTER TABLE decision ADD COLUMN engine TEXT;

-- Which release decided, from that decision on.
CREATE TABLE decided_by (
    decision BIGINT NOT NULL PRIMARY KEY,
    release TEXT NOT NULL
);
