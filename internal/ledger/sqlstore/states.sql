-- States of components, see ledger.StateStore. Checksums are verified when a state is read.
CREATE TABLE states (
	name TEXT PRIMARY KEY,
	saved BIGINT NOT NULL, -- Unix seconds
	payload {blob} NOT NULL,
	crc BIGINT NOT NULL
);
