// Package zone keeps what is known of the electricity grid: it fills the status of GridZones, remembers what carbon
// intensities and prices were, and says what a joule of a node emitted and cost.
//
// On its way a signal has three forms: a [signal.Answer] is what a source said; the status of the GridZone is what a
// [signal.Keeper] believes and all readers take; a [grid.Signal] in a [kube.View] is what decisions read of it. What
// held is kept in a [signal.Track] of five-minute slots, one type for two uses: a keeper's, of four weeks, to forecast
// from, and that of [History], of three days, to say what finished work emitted. Keepers run in the replica that leads.
// The History runs in every replica, from views, so that a new leader knows what was.
//
// Invariants, and the tests that hold them:
//
//   - No track mixes two kinds of carbon intensity or two currencies: TestHistoryNeverMixesUnits.
//   - What was not recorded is not known, and nothing is guessed for it: TestRates, TestHistory.
//   - Calls to a provider stay within its limit over restarts and replicas: TestCallsStayWithinTheLimit.
//   - A status is written when something has changed, and not more often: TestZoneStatus, TestSignalChanged.
//
// When a provider fails, the status keeps the last good answer until that is too old. When the API server fails,
// nothing is asked, as calls could not be counted.
package zone
