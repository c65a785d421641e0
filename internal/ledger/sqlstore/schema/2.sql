-- What an agent's booking tells of beyond the window that it is written in: no estimate stands there. Before, this was
-- in meta, as long/NODE/START.
CREATE TABLE reaches (
	node BIGINT NOT NULL, start BIGINT NOT NULL, last BIGINT NOT NULL, -- Unix seconds
	PRIMARY KEY (node, start, last)
);
INSERT INTO reaches (node, start, last)
	SELECT CAST(substr(head, 6, length(head) - 6) AS BIGINT), CAST(substr(key, length(head) + 1) AS BIGINT),
		CAST(value AS BIGINT)
	FROM (SELECT key, value, rtrim(key, '-0123456789') AS head FROM meta WHERE key LIKE 'long/%') AS before;
DELETE FROM meta WHERE key LIKE 'long/%';
