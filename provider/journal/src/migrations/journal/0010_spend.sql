-- What nodes did and cost, as spans of time with one state and one pair of rates each. Times are Unix seconds, rates micro-dollars an
-- hour. An open span has no end. `units` is what the node advertises to pods; `list_rate` is NULL where no table tells it.
CREATE TABLE node_span (
    record BIGINT NOT NULL,
    since BIGINT NOT NULL,
    until BIGINT,
    pool TEXT NOT NULL,
    node TEXT,
    instance TEXT NOT NULL,
    cloud TEXT NOT NULL,
    region TEXT NOT NULL,
    zone TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    reservation TEXT,
    model TEXT NOT NULL,
    gpus BIGINT NOT NULL,
    units BIGINT NOT NULL,
    state TEXT NOT NULL,
    list_rate BIGINT,
    rate BIGINT NOT NULL,
    PRIMARY KEY (record, since)
);
CREATE INDEX node_span_until ON node_span (until);

-- A node's life: `taken` is when the cloud announced that it takes it back, or took it; `how` is how it ended.
CREATE TABLE node_life (
    record BIGINT NOT NULL PRIMARY KEY,
    pool TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    ordered BIGINT NOT NULL,
    ready BIGINT,
    taken BIGINT,
    ended BIGINT,
    how TEXT
);
CREATE INDEX node_life_ended ON node_life (ended);

-- From when until when somebody looked. Between two rows nobody knows what nodes did.
CREATE TABLE spend_known (
    since BIGINT NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
);
