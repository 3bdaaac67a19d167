-- Only types and statements that SQLite and PostgreSQL share: TEXT holds JSON, hashes and times (RFC 3339), BIGINT numbers.

-- Policies and price books, each once.
CREATE TABLE content (
    id BIGINT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL
);

-- What changes all the time (memory, snapshot, market facts) as chains of bases and of deltas on them. A base has its own number as base.
CREATE TABLE step (
    stream TEXT NOT NULL,
    seq BIGINT NOT NULL,
    base BIGINT NOT NULL,
    body TEXT NOT NULL,
    checksum BIGINT NOT NULL,
    PRIMARY KEY (stream, seq)
);

-- Calls of the autoscaler that were accepted, with the memory that they left.
CREATE TABLE accepted (
    seq BIGINT NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    body TEXT NOT NULL,
    memory BIGINT NOT NULL
);

-- Decisions, with all that they depended on: numbers of content and steps. A step 0 is one before anything was known.
CREATE TABLE decision (
    id BIGINT NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    policy BIGINT NOT NULL,
    prices BIGINT NOT NULL,
    facts BIGINT NOT NULL,
    snapshot BIGINT NOT NULL,
    memory_before BIGINT NOT NULL,
    memory_after BIGINT NOT NULL,
    actions TEXT NOT NULL,
    notes TEXT NOT NULL,
    explanations TEXT NOT NULL
);
CREATE INDEX decision_policy ON decision (policy);
CREATE INDEX decision_prices ON decision (prices);

-- Which launch made which machine for which record. `decision` is the first that knew of it, `ended` the memory step that forgot it.
CREATE TABLE launch (
    key TEXT NOT NULL PRIMARY KEY,
    record BIGINT NOT NULL,
    node_group TEXT NOT NULL,
    market TEXT NOT NULL,
    decision BIGINT,
    instance TEXT,
    node TEXT,
    ended BIGINT
);
CREATE INDEX launch_record ON launch (record);
CREATE INDEX launch_instance ON launch (instance);
CREATE INDEX launch_node ON launch (node);
CREATE INDEX launch_ended ON launch (ended);

-- Which decision touched what: `record:12`, `instance:aws:///…`, `node:ip-10-0-0-1`.
CREATE TABLE touched (
    subject TEXT NOT NULL,
    decision BIGINT NOT NULL,
    PRIMARY KEY (subject, decision)
);
CREATE INDEX touched_decision ON touched (decision);
