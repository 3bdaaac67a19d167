-- Readings have a file of their own.
DROP TABLE reading_hour;
DROP TABLE reading_size;
DROP TABLE reading_latest;

-- Which journal this is: one row. Each new or restored journal has another name, which its launch keys carry.
CREATE TABLE incarnation (
    id BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL
);

-- Rows from before have none.
ALTER TABLE accepted ADD COLUMN checksum BIGINT;
ALTER TABLE decision ADD COLUMN checksum BIGINT;
