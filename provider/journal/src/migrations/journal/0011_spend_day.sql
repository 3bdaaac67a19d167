-- What a day came to, kept when its spans and pods are forgotten. `day` counts from 1970, by UTC; `body` is its rows as JSON.
CREATE TABLE spend_day (
    day BIGINT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
);
