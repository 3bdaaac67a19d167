-- Which leader writes, where several replicas share the journal: one row. Each takes a number above the one before.
CREATE TABLE leader (
    id BIGINT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
);
