// Package sqlstore is what the stores of the ledger have in common: their tables and everything they do in SQL that
// SQLite and PostgreSQL both understand.
package sqlstore
