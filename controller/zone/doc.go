// Package zone keeps what is known of the electricity grid: it fills the status of GridZones, remembers what carbon
// intensities and prices were, and says what a joule of a node emitted and cost.
//
// The walk of a signal has three forms: a [signal.Keeper] asks providers and holds readings; the status of the
// GridZone is what all readers take of it, as a [grid.Signal] in a [kube.View]; [History] keeps what held, in slots of
// five minutes. Keepers run in the replica that leads. The history runs in every replica, from views, so that a new
// leader knows what was. It is not the keepers' own history, which holds hourly means of four weeks to forecast from.
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
