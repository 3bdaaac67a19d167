-- What was read of each node's GPUs, one row a node and hour (hours since 1970). The body is what `NodeHour::encode` makes: some two
-- hundred bytes a GPU, where JSON would take several times as many. SQLite stores bytes under any name of a type; this one is PostgreSQL's.
CREATE TABLE reading_hour (
    hour BIGINT NOT NULL,
    node TEXT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (hour, node)
);

-- What the rows of an hour take, so that the whole can be bounded without going over it.
CREATE TABLE reading_size (
    hour BIGINT NOT NULL PRIMARY KEY,
    nodes BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);

-- The newest levels of each node, as JSON; `at` in Unix seconds.
CREATE TABLE reading_latest (
    node TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    body TEXT NOT NULL
);
