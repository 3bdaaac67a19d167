-- Where decision time stood last, so that a restart goes on from there: one row. `boot` is the boot-time clock then, in nanoseconds, and
-- `boot_id` which boot of which machine that was. `decision` and `call` are the last ones that were written by then: of later ones the time is
-- later, and earlier ones may be of a wall that ran ahead.
CREATE TABLE clock (
    id BIGINT NOT NULL PRIMARY KEY,
    now TEXT NOT NULL,
    boot BIGINT NOT NULL,
    boot_id TEXT,
    decision BIGINT NOT NULL,
    call BIGINT NOT NULL
);
