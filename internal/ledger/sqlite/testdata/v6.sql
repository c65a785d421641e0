CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE streams (
	node TEXT NOT NULL, boot TEXT NOT NULL, epoch TEXT NOT NULL,
	acked BIGINT NOT NULL,  -- unsigned number, stored as a signed one
	gaps BIGINT NOT NULL,   -- number of gaps in the sequence numbers
	seen BIGINT NOT NULL,   -- Unix seconds
	crc BIGINT NOT NULL,
	PRIMARY KEY (node, boot, epoch)
);
CREATE TABLE spans (
	node TEXT NOT NULL, boot TEXT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL,
	seen BIGINT NOT NULL,
	crc BIGINT NOT NULL,
	PRIMARY KEY (node, boot, first)
);
CREATE TABLE nodes (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, crc BIGINT NOT NULL);
CREATE TABLE accounts (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	kind INTEGER NOT NULL, namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner TEXT NOT NULL, parent TEXT NOT NULL,
	team TEXT NOT NULL, strategy TEXT NOT NULL, host TEXT NOT NULL, site TEXT NOT NULL, signal TEXT NOT NULL,
	currency TEXT NOT NULL,
	seen BIGINT NOT NULL,   -- Unix seconds of the last use, up to a day old; not covered by the checksum
	crc BIGINT NOT NULL,
	UNIQUE (kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency)
);
CREATE TABLE consumers (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	node BIGINT NOT NULL, key TEXT NOT NULL, pod TEXT NOT NULL, namespace TEXT NOT NULL,
	seen BIGINT NOT NULL,   -- as in accounts
	crc BIGINT NOT NULL,
	UNIQUE (node, key)
);
CREATE INDEX consumers_by_pod ON consumers (namespace, pod);
CREATE TABLE journal (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	node BIGINT NOT NULL, start BIGINT NOT NULL, finish BIGINT NOT NULL, -- Unix milliseconds
	payload BLOB NOT NULL -- see entry.go; ends with a checksum
);
CREATE TABLE windows (
	start BIGINT NOT NULL, -- Unix seconds
	node BIGINT NOT NULL, agentless INTEGER NOT NULL,
	payload BLOB NOT NULL, -- see pack.go; ends with a checksum
	PRIMARY KEY (node, start, agentless)
);
CREATE INDEX windows_by_start ON windows (start);
CREATE TABLE reaches (
	node BIGINT NOT NULL, start BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	PRIMARY KEY (node, start, last)
);
CREATE TABLE account_hours (
	start BIGINT NOT NULL, account BIGINT NOT NULL,
	dynamic BIGINT NOT NULL, idle BIGINT NOT NULL, cpu BIGINT NOT NULL, facility BIGINT NOT NULL,
	carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	crc BIGINT NOT NULL, gpu BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (start, account)
);
CREATE TABLE account_days (
	start BIGINT NOT NULL, account BIGINT NOT NULL,
	dynamic BIGINT NOT NULL, idle BIGINT NOT NULL, cpu BIGINT NOT NULL, facility BIGINT NOT NULL,
	carbon BIGINT NOT NULL, cost BIGINT NOT NULL,
	estimated BIGINT NOT NULL, uncharted BIGINT NOT NULL, unpriced BIGINT NOT NULL,
	first BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	crc BIGINT NOT NULL, gpu BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (start, account)
);
CREATE TABLE node_hours (
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
CREATE TABLE node_days (
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
CREATE TABLE records (
	id TEXT PRIMARY KEY, at BIGINT NOT NULL, -- Unix milliseconds
	namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner TEXT NOT NULL, uid TEXT NOT NULL, strategy TEXT NOT NULL,
	record BLOB NOT NULL,  -- JSON without the snapshot
	snapshot BLOB,         -- ends with a checksum
	crc BIGINT NOT NULL      -- covers all columns except the snapshot
);
CREATE INDEX records_by_time ON records (at);
CREATE INDEX records_by_owner ON records (namespace, owner, at);
CREATE INDEX records_by_uid ON records (uid);
CREATE TABLE outbox (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	at BIGINT NOT NULL, -- Unix seconds
	stream TEXT NOT NULL, payload BLOB NOT NULL,
	crc BIGINT NOT NULL
);
CREATE TABLE temperatures (
	start BIGINT NOT NULL, node BIGINT NOT NULL,
	total DOUBLE PRECISION NOT NULL, samples BIGINT NOT NULL, most DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (start, node)
);
CREATE TABLE states (
	name TEXT PRIMARY KEY,
	saved BIGINT NOT NULL, -- Unix seconds
	payload BLOB NOT NULL,
	crc BIGINT NOT NULL
);
INSERT INTO meta (key, value) VALUES ('oldest', '5');
INSERT INTO meta (key, value) VALUES ('schema', '6');
INSERT INTO meta (key, value) VALUES ('told/node0000', '1793707216 0');
INSERT INTO meta (key, value) VALUES ('told/node0001', '1793707216 0');
INSERT INTO meta (key, value) VALUES ('day/1793664000', 'XSYIAEHK7D5PZYONBYH2FLLR2S');
INSERT INTO streams (node, boot, epoch, acked, gaps, seen, crc) VALUES ('node0000', 'boot of node0000', 'epoch released', 7, 0, 1793707200, 2357113406);
INSERT INTO streams (node, boot, epoch, acked, gaps, seen, crc) VALUES ('node0001', 'boot of node0001', 'epoch released', 7, 0, 1793707200, 681040498);
INSERT INTO spans (node, boot, first, last, seen, crc) VALUES ('node0000', 'boot of node0000', 0, 105000000000, 1793707200, 1012632525);
INSERT INTO spans (node, boot, first, last, seen, crc) VALUES ('node0001', 'boot of node0001', 0, 105000000000, 1793707200, 3786983104);
INSERT INTO nodes (id, name, crc) VALUES (1, 'node0000', 3813576085);
INSERT INTO nodes (id, name, crc) VALUES (2, 'node0001', 287641238);
INSERT INTO accounts (id, kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency, seen, crc) VALUES (1, 4, '', '', '', '', '', '', '', 'site', 'average', 'EUR', 1793707200, 3375447113);
INSERT INTO accounts (id, kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency, seen, crc) VALUES (2, 0, 'ns0', 'Deployment', 'owner0', '', 'team', '', '', 'site', 'average', 'EUR', 1793707200, 3294727605);
INSERT INTO accounts (id, kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency, seen, crc) VALUES (3, 0, 'ns1', 'Deployment', 'owner1', '', 'team', '', '', 'site', 'average', 'EUR', 1793707200, 2308844933);
INSERT INTO accounts (id, kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency, seen, crc) VALUES (4, 0, 'ns2', 'Deployment', 'owner2', '', 'team', '', '', 'site', 'average', 'EUR', 1793707200, 1604242901);
INSERT INTO accounts (id, kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency, seen, crc) VALUES (5, 1, '', '', '', '', '', '', '', 'site', 'average', 'EUR', 1793707200, 34385838);
INSERT INTO accounts (id, kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency, seen, crc) VALUES (6, 3, '', '', '', '', '', '', '', 'site', 'average', 'EUR', 1793707200, 2034306616);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (1, 1, 'pod/00000000-0000-4000-8000-000000000000', 'pod-0-0', 'ns0', 1793707200, 2321554057);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (2, 1, 'pod/00000000-0000-4000-8000-000000000001', 'pod-0-1', 'ns1', 1793707200, 1892208195);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (3, 1, 'pod/00000000-0000-4000-8000-000000000002', 'pod-0-2', 'ns2', 1793707200, 2061354476);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (4, 1, 'system', '', '', 1793707200, 3223977275);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (5, 1, 'platform', '', '', 1793707200, 3752268760);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (6, 1, 'unknown', '', '', 1793707200, 247721722);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (7, 2, 'pod/00000001-0000-4000-8000-000000000000', 'pod-1-0', 'ns0', 1793707200, 118291348);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (8, 2, 'pod/00000001-0000-4000-8000-000000000001', 'pod-1-1', 'ns1', 1793707200, 4255395678);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (9, 2, 'pod/00000001-0000-4000-8000-000000000002', 'pod-1-2', 'ns2', 1793707200, 4155581681);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (10, 2, 'system', '', '', 1793707200, 537172442);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (11, 2, 'platform', '', '', 1793707200, 285650944);
INSERT INTO consumers (id, node, key, pod, namespace, seen, crc) VALUES (12, 2, 'unknown', '', '', 1793707200, 528017543);
INSERT INTO journal (id, node, start, finish, payload) VALUES (11, 1, 1793707275000, 1793707290000, x'010080b8c5d6ebd0c3e43180d88ee16f00eef693bb02666666666666f63f0000000000c07240000000000000d03f02060202b8e1b84f8caa8410b0aba3ef1f020284e5e60e9ac7cb0dc0ce878e1f0202a487ac51e0b9e30fd0fab8ce180202fc9eb0510080a8d6b9070202b6eadc0c00000209d6f407000026fb8286');
INSERT INTO journal (id, node, start, finish, payload) VALUES (12, 2, 1793707275000, 1793707290000, x'010080b8c5d6ebd0c3e43180d88ee16f00d090d5ba02666666666666f63f0000000000c07240000000000000d03f02060e02e08caa42aca0e4018092c3b6550202e68da414bebeb60de0ecc7ca4e0202fa93811e90acd517f092efdb58020298fdfe550080a8d6b9070202c8e28e4900000209b6f707000073730fb1');
INSERT INTO journal (id, node, start, finish, payload) VALUES (13, 1, 1793707290000, 1793707305000, x'01028090d4b7dbd1c3e43180d88ee16f80a8d6b907a8a4bdc702666666666666f63f0000000000c07240000000000000d03f02060202b0c7f71ec2eb8115a0f584df0b0202b098b02cbac4f604c0c3d3f942020280abb65290a3c804b0bbcbf1680202bea1e9390080a8d6b907020292d1b35100000209ecd30100008884e025');
INSERT INTO journal (id, node, start, finish, payload) VALUES (14, 2, 1793707290000, 1793707305000, x'01028090d4b7dbd1c3e43180d88ee16f80a8d6b907f2d481f901666666666666f63f0000000000c07240000000000000d03f02060e02aec8f129908fe80ac08897dc420202ce8db114b499dd0fc0caad8116020282dbd40fecc5ca029096fac31f0202f8f3b8590080a8d6b90702029ea4bf3400000209ae9d020000e51bbd23');
INSERT INTO windows (start, node, agentless, payload) VALUES (1793707200, 1, 0, x'01009601c7a98b666666f63f7549c70483d8153fb5662e655e34123f010200060000020488c38edc01f0f0df519ca8f61d0001000204fcb3ed73ecb6d638a28dcb260000010204e8a8a39d01c0de9c4ad0e3802a00020002049a9bd482010080ade2040000010204debdb3da0100000102020212f0d6240000000102643ca89e');
INSERT INTO windows (start, node, agentless, payload) VALUES (1793707200, 2, 0, x'010096015adc0d666666f63f92887d6367d8153f60aa63255c34123f0102000600000e049485fdbd02e8a5e957e6b98a210002010204b0c8eef501d0eaf36fa4eba3210000020204eed38ac501e690b23adeca801b0200020204ded396c4020080ade204020000020496fdfb9c020000010000021294e01d000000000048977fc6');
INSERT INTO account_hours (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793707200, 1, 544194, 0, 0, 761872, 62, 54, 0, 0, 0, 1793707200, 1793707275, 2937950054, 0);
INSERT INTO account_hours (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793707200, 2, 564228622, 177808812, 66066561000, 1038852407, 86572, 72142, 0, 0, 0, 1793707200, 1793707275, 545257434, 0);
INSERT INTO account_hours (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793707200, 3, 379289366, 176769118, 75357731000, 778481877, 64874, 54062, 0, 0, 0, 1793707200, 1793707275, 1585398656, 0);
INSERT INTO account_hours (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793707200, 4, 371572523, 139058131, 72362903000, 714882916, 59575, 49645, 0, 0, 0, 1793707200, 1793707275, 2060265507, 0);
INSERT INTO account_hours (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793707200, 5, 476928956, 0, 10000000000, 667700539, 55642, 46367, 0, 0, 0, 1793707200, 1793707275, 487907714, 0);
INSERT INTO account_hours (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793707200, 6, 527822522, 0, 0, 738951529, 61580, 51317, 0, 0, 0, 1793707200, 1793707275, 2108181837, 0);
INSERT INTO account_days (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793664000, 1, 544194, 0, 0, 761872, 62, 54, 0, 0, 0, 1793707200, 1793707275, 2927673094, 0);
INSERT INTO account_days (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793664000, 2, 564228622, 177808812, 66066561000, 1038852407, 86572, 72142, 0, 0, 0, 1793707200, 1793707275, 568510394, 0);
INSERT INTO account_days (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793664000, 3, 379289366, 176769118, 75357731000, 778481877, 64874, 54062, 0, 0, 0, 1793707200, 1793707275, 1608676320, 0);
INSERT INTO account_days (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793664000, 4, 371572523, 139058131, 72362903000, 714882916, 59575, 49645, 0, 0, 0, 1793707200, 1793707275, 2068846659, 0);
INSERT INTO account_days (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793664000, 5, 476928956, 0, 10000000000, 667700539, 55642, 46367, 0, 0, 0, 1793707200, 1793707275, 478794210, 0);
INSERT INTO account_days (start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc, gpu) VALUES (1793664000, 6, 527822522, 0, 0, 738951529, 61580, 51317, 0, 0, 0, 1793707200, 1793707275, 2083880237, 0);
INSERT INTO node_hours (start, node, host, site, signal, currency, measured, dynamic, shared, cpu, idle, platform, unknown, facility, carbon, cost, estimated, uncharted, unpriced, unmeasured, first, last, crc, gpu) VALUES (1793707200, 1, '', 'site', 'average', 'EUR', 1106498936, 654208707, 222978446, 120885639000, 0, 229011311, 300472, 1549098511, 129094, 107577, 0, 0, 0, 0, 1793707200, 1793707275, 1609352027, 0);
INSERT INTO node_hours (start, node, host, site, signal, currency, measured, dynamic, shared, cpu, idle, platform, unknown, facility, carbon, cost, estimated, uncharted, unpriced, unmeasured, first, last, crc, gpu) VALUES (1793707200, 2, '', 'site', 'average', 'EUR', 1707523308, 1137810760, 270657615, 102901556000, 0, 298811211, 243722, 2390532629, 199211, 166010, 0, 0, 0, 0, 1793707200, 1793707275, 3630635714, 0);
INSERT INTO node_days (start, node, host, site, signal, currency, measured, dynamic, shared, cpu, idle, platform, unknown, facility, carbon, cost, estimated, uncharted, unpriced, unmeasured, first, last, crc, gpu) VALUES (1793664000, 1, '', 'site', 'average', 'EUR', 1106498936, 654208707, 222978446, 120885639000, 0, 229011311, 300472, 1549098511, 129094, 107577, 0, 0, 0, 0, 1793707200, 1793707275, 2249449309, 0);
INSERT INTO node_days (start, node, host, site, signal, currency, measured, dynamic, shared, cpu, idle, platform, unknown, facility, carbon, cost, estimated, uncharted, unpriced, unmeasured, first, last, crc, gpu) VALUES (1793664000, 2, '', 'site', 'average', 'EUR', 1707523308, 1137810760, 270657615, 102901556000, 0, 298811211, 243722, 2390532629, 199211, 166010, 0, 0, 0, 0, 1793707200, 1793707275, 26740420, 0);
