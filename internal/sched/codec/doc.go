// Package codec encodes snapshots such that each strategy makes the same decisions on the decoded snapshot.
// Decision records contain encoded snapshots.
package codec
