-- When pods were looked at. Between two rows nobody knows which there were.
CREATE TABLE pod_known (
    since BIGINT NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
);
INSERT INTO pod_known (since, until) SELECT since, until FROM pod_span;
DROP TABLE pod_span;

-- The rows of a day with machines and workloads kept apart, for as long as spans are kept; `body` is JSON.
CREATE TABLE spend_rows (
    day BIGINT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
);
