-- How hot nodes were, in degrees Celsius, by hour (Unix seconds of its beginning, UTC): the sum of all samples, and the
-- highest. It goes when the hour's sums go. It is no part of the books: no audit looks at it.
CREATE TABLE temperatures (
	start BIGINT NOT NULL, node BIGINT NOT NULL,
	total DOUBLE PRECISION NOT NULL, samples BIGINT NOT NULL, most DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (start, node)
);
