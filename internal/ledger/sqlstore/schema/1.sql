-- schema: the version of the tables; oldest: of the oldest program that can use them; day/UNIX SECONDS: another text
-- each time that sums of the day change.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- What was acknowledged of each stream.
CREATE TABLE streams (
	node TEXT NOT NULL, boot TEXT NOT NULL, epoch TEXT NOT NULL,
	acked BIGINT NOT NULL,  -- as a signed number
	gaps BIGINT NOT NULL,   -- how often numbers were missing
	seen BIGINT NOT NULL,   -- Unix seconds
	crc BIGINT NOT NULL,    -- of all that is before: see crc.go
	PRIMARY KEY (node, boot, epoch)
);

-- Time of each boot that is booked, in nanoseconds since boot. Intervals that touch are one row.
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
	seen BIGINT NOT NULL,   -- Unix seconds: used then, or up to a day later; not in the sum
	crc BIGINT NOT NULL,
	UNIQUE (kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency)
);

-- Who used something on a node. The name of a pod may be learned later than its energy.
CREATE TABLE consumers (
	id {serial},
	node BIGINT NOT NULL, key TEXT NOT NULL, pod TEXT NOT NULL, namespace TEXT NOT NULL,
	seen BIGINT NOT NULL,   -- as in accounts
	crc BIGINT NOT NULL,
	UNIQUE (node, key)
);
CREATE INDEX consumers_by_pod ON consumers (namespace, pod);

-- Bookings that are not in windows and sums yet.
CREATE TABLE journal (
	id {serial},
	node BIGINT NOT NULL, start BIGINT NOT NULL, finish BIGINT NOT NULL, -- Unix milliseconds
	payload {blob} NOT NULL -- see pack.go; ends in a sum of its bytes
);

-- What the consumers of a node used in five minutes. agentless: as the controller estimated it; it stands only where
-- there is no other.
CREATE TABLE windows (
	start BIGINT NOT NULL, -- Unix seconds
	node BIGINT NOT NULL, agentless INTEGER NOT NULL,
	payload {blob} NOT NULL, -- as in journal
	PRIMARY KEY (node, start, agentless)
);
CREATE INDEX windows_by_start ON windows (start);

-- Sums, by hour and by day (Unix seconds of their beginning, UTC), by account and by node. The energy of all
-- accounts but
-- those of kind transfer is that of all nodes.
CREATE TABLE account_hours (
	start BIGINT NOT NULL, account BIGINT NOT NULL,
	dynamic BIGINT NOT NULL, idle BIGINT NOT NULL, cpu BIGINT NOT NULL, facility BIGINT NOT NULL,
	carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	crc BIGINT NOT NULL,
	PRIMARY KEY (start, account)
);
CREATE TABLE account_days (
	start BIGINT NOT NULL, account BIGINT NOT NULL,
	dynamic BIGINT NOT NULL, idle BIGINT NOT NULL, cpu BIGINT NOT NULL, facility BIGINT NOT NULL,
	carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL,
	crc BIGINT NOT NULL,
	PRIMARY KEY (start, account)
);
CREATE TABLE node_hours (
	start BIGINT NOT NULL, node BIGINT NOT NULL, host TEXT NOT NULL, site TEXT NOT NULL, signal TEXT NOT NULL,
	currency TEXT NOT NULL,
	measured BIGINT NOT NULL, dynamic BIGINT NOT NULL, shared BIGINT NOT NULL, cpu BIGINT NOT NULL,
	idle BIGINT NOT NULL, platform BIGINT NOT NULL, unknown BIGINT NOT NULL,
	facility BIGINT NOT NULL, carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL, unmeasured BIGINT NOT NULL,
	-- nanoseconds
	first BIGINT NOT NULL, last BIGINT NOT NULL,
	crc BIGINT NOT NULL,
	PRIMARY KEY (start, node, host, site, signal, currency)
);
CREATE TABLE node_days (
	start BIGINT NOT NULL, node BIGINT NOT NULL, host TEXT NOT NULL, site TEXT NOT NULL, signal TEXT NOT NULL,
	currency TEXT NOT NULL,
	measured BIGINT NOT NULL, dynamic BIGINT NOT NULL, shared BIGINT NOT NULL, cpu BIGINT NOT NULL,
	idle BIGINT NOT NULL, platform BIGINT NOT NULL, unknown BIGINT NOT NULL,
	facility BIGINT NOT NULL, carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL, unmeasured BIGINT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL,
	crc BIGINT NOT NULL,
	PRIMARY KEY (start, node, host, site, signal, currency)
);

-- Decisions.
CREATE TABLE records (
	id TEXT PRIMARY KEY, at BIGINT NOT NULL, -- Unix milliseconds
	namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner TEXT NOT NULL, uid TEXT NOT NULL, strategy TEXT NOT NULL,
	record {blob} NOT NULL,  -- JSON, without the snapshot
	snapshot {blob},
	crc BIGINT NOT NULL -- of all but the snapshot, which has one in its end
);
CREATE INDEX records_by_time ON records (at);
CREATE INDEX records_by_owner ON records (namespace, owner, at);
CREATE INDEX records_by_uid ON records (uid);
