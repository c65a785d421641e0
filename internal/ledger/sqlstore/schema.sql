-- schema: version of the tables; oldest: version that a program must support to use them; day/UNIX SECONDS: random
-- text that changes with the sums of the day. See also reported.go and keep.go.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- Acknowledged sequence numbers. Checksums cover all columns before them, see crc.go.
CREATE TABLE streams (
	node TEXT NOT NULL, boot TEXT NOT NULL, epoch TEXT NOT NULL,
	acked BIGINT NOT NULL,  -- unsigned number, stored as a signed one
	gaps BIGINT NOT NULL,   -- number of gaps in the sequence numbers
	seen BIGINT NOT NULL,   -- Unix seconds
	crc BIGINT NOT NULL,
	PRIMARY KEY (node, boot, epoch)
);

-- Recorded intervals of each boot, in nanoseconds since boot. Adjacent intervals are merged.
CREATE TABLE spans (
	node TEXT NOT NULL, boot TEXT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL,
	seen BIGINT NOT NULL,
	crc BIGINT NOT NULL,
	PRIMARY KEY (node, boot, first)
);

CREATE TABLE nodes (id {serial}, name TEXT NOT NULL UNIQUE, crc BIGINT NOT NULL);

CREATE TABLE accounts (
	id {serial},
	kind INTEGER NOT NULL, namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner TEXT NOT NULL, parent TEXT NOT NULL,
	team TEXT NOT NULL, strategy TEXT NOT NULL, host TEXT NOT NULL, site TEXT NOT NULL, signal TEXT NOT NULL,
	currency TEXT NOT NULL,
	seen BIGINT NOT NULL,   -- Unix seconds of the last use, up to a day old; not covered by the checksum
	crc BIGINT NOT NULL,
	UNIQUE (kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency)
);

-- Consumers of nodes. The name of a pod may be added after its energy.
CREATE TABLE consumers (
	id {serial},
	node BIGINT NOT NULL, key TEXT NOT NULL, pod TEXT NOT NULL, namespace TEXT NOT NULL,
	seen BIGINT NOT NULL,   -- as in accounts
	crc BIGINT NOT NULL,
	UNIQUE (node, key)
);
CREATE INDEX consumers_by_pod ON consumers (namespace, pod);

-- Bookings that are not folded into windows and sums yet.
CREATE TABLE journal (
	id {serial},
	node BIGINT NOT NULL, start BIGINT NOT NULL, finish BIGINT NOT NULL, -- Unix milliseconds
	payload {blob} NOT NULL -- see entry.go; ends with a checksum
);

-- Usage of all consumers of a node in five minutes. agentless is 1 for estimates of the controller, which only count
-- in windows without data of an agent.
CREATE TABLE windows (
	start BIGINT NOT NULL, -- Unix seconds
	node BIGINT NOT NULL, agentless INTEGER NOT NULL,
	payload {blob} NOT NULL, -- see pack.go; ends with a checksum
	PRIMARY KEY (node, start, agentless)
);
CREATE INDEX windows_by_start ON windows (start);

-- Intervals of agents' bookings beyond the windows in which they are recorded, see reaches.go.
CREATE TABLE reaches (
	node BIGINT NOT NULL, start BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	PRIMARY KEY (node, start, last)
);

-- Sums by account and by node, in one table each for hours and days (UTC). The energy of all accounts except those of
-- kind transfer equals the energy of all nodes. The checksum covers gpu unless it is 0.
CREATE TABLE account_{step} (
	start BIGINT NOT NULL, account BIGINT NOT NULL,
	dynamic BIGINT NOT NULL, idle BIGINT NOT NULL, cpu BIGINT NOT NULL, facility BIGINT NOT NULL,
	carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	crc BIGINT NOT NULL, gpu BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (start, account)
);
CREATE TABLE node_{step} (
	start BIGINT NOT NULL, node BIGINT NOT NULL, host TEXT NOT NULL, site TEXT NOT NULL, signal TEXT NOT NULL,
	currency TEXT NOT NULL,
	measured BIGINT NOT NULL, dynamic BIGINT NOT NULL, shared BIGINT NOT NULL, cpu BIGINT NOT NULL,
	idle BIGINT NOT NULL, platform BIGINT NOT NULL, unknown BIGINT NOT NULL,
	facility BIGINT NOT NULL, carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL,
	unmeasured BIGINT NOT NULL, -- nanoseconds
	first BIGINT NOT NULL, last BIGINT NOT NULL,
	crc BIGINT NOT NULL, gpu BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (start, node, host, site, signal, currency)
);

-- Decisions.
CREATE TABLE records (
	id TEXT PRIMARY KEY, at BIGINT NOT NULL, -- Unix milliseconds
	namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner TEXT NOT NULL, uid TEXT NOT NULL, strategy TEXT NOT NULL,
	record {blob} NOT NULL,  -- JSON without the snapshot
	snapshot {blob},         -- ends with a checksum
	crc BIGINT NOT NULL      -- covers all columns except the snapshot
);
CREATE INDEX records_by_time ON records (at);
CREATE INDEX records_by_owner ON records (namespace, owner, at);
CREATE INDEX records_by_uid ON records (uid);

-- Bookings to be forwarded, until the federation has received them. IDs are never reused.
CREATE TABLE outbox (
	id {serial},
	at BIGINT NOT NULL, -- Unix seconds
	stream TEXT NOT NULL, payload {blob} NOT NULL,
	crc BIGINT NOT NULL
);

-- Temperatures of nodes in degrees Celsius by hour (Unix seconds, UTC): the sum of all samples, and the maximum. They
-- are dropped with the sums of the hour, and are not audited.
CREATE TABLE temperatures (
	start BIGINT NOT NULL, node BIGINT NOT NULL,
	total DOUBLE PRECISION NOT NULL, samples BIGINT NOT NULL, most DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (start, node)
);
