-- What was booked and is to be forwarded, until the federation has it. Numbers are never used twice.
CREATE TABLE outbox (
	id {serial},
	at BIGINT NOT NULL, -- Unix seconds
	stream TEXT NOT NULL, payload {blob} NOT NULL,
	crc BIGINT NOT NULL
);
