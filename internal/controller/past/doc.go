// Package past stores the past values of signals. A [Track] contains recent values in slots of five minutes, an
// [Archive] hourly means over two years and the forecasts that were issued, which it stores and compares.
//
// Invariants and their tests:
//
//   - A stored history is never replaced by a shorter one (TestArchive).
//   - Outages of up to three days do not discard the history before them (TestGaps).
package past
