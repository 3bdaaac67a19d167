-- How much was held, hour by hour (hours since 1970), kept longer than decisions. `known` says for how many seconds of the hour it is
-- known, `until` up to which moment (Unix seconds) it is counted: nothing before it is counted again.
CREATE TABLE known_hour (
    hour BIGINT NOT NULL PRIMARY KEY,
    known BIGINT NOT NULL,
    until BIGINT NOT NULL
);

-- Node-seconds held in the known part of an hour, by market.
CREATE TABLE used_hour (
    hour BIGINT NOT NULL,
    cloud TEXT NOT NULL,
    region TEXT NOT NULL,
    zone TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    node_seconds BIGINT NOT NULL,
    PRIMARY KEY (hour, cloud, region, zone, instance_type, capacity_type)
);
