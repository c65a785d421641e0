-- What GPUs used of the energy. Sums of bytes leave it out where it is nothing.
ALTER TABLE account_hours ADD COLUMN gpu BIGINT NOT NULL DEFAULT 0;
ALTER TABLE account_days ADD COLUMN gpu BIGINT NOT NULL DEFAULT 0;
ALTER TABLE node_hours ADD COLUMN gpu BIGINT NOT NULL DEFAULT 0;
ALTER TABLE node_days ADD COLUMN gpu BIGINT NOT NULL DEFAULT 0;
