-- A row from before has none.
ALTER TABLE clock ADD COLUMN checksum BIGINT;
