-- GPU pods: what each asked for, and when it ran. Times are Unix seconds. `name` is namespace/name. A row has no end while the pod runs;
-- `end_seen` is 0 where the pod was found gone after nobody had looked for a while, so that it ended at that time or before.
CREATE TABLE pod (
    uid TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    owner_kind TEXT,
    owner TEXT NOT NULL,
    labels TEXT NOT NULL,
    pool TEXT,
    models TEXT NOT NULL,
    gpus BIGINT,
    slices TEXT NOT NULL,
    milli_cpu BIGINT NOT NULL,
    memory_mib BIGINT NOT NULL,
    node TEXT NOT NULL,
    created BIGINT NOT NULL,
    bound BIGINT NOT NULL,
    ended BIGINT,
    end_seen BIGINT NOT NULL
);
CREATE INDEX pod_ended ON pod (ended);

-- From when until when pods are recorded: one row.
CREATE TABLE pod_span (
    id BIGINT NOT NULL PRIMARY KEY,
    since BIGINT NOT NULL,
    until BIGINT NOT NULL
);
