// Package zone implements the controller of GridZones. It fills their status, records past carbon intensities and
// prices, and computes the emissions and the cost of a joule on a node.
//
// A signal takes three forms. A [signal.Answer] is the response of a source. The status of the GridZone contains
// the result of a [signal.Keeper] and is read by other components. A [grid.Signal] in a [kube.View] is the form
// that decisions are based on. Past values are stored in a [past.Track] of five-minute slots. A keeper has a
// track of four weeks and a [past.Archive] of two years to forecast from, and [History] has tracks of three days to
// compute the emissions of finished work. Keepers run in the leader only. The History runs in every replica and reads
// views, so that a new leader has past values.
//
// Invariants and their tests:
//
//   - A track never mixes two kinds of carbon intensity or two currencies: TestHistoryNeverMixesUnits.
//   - Values that were not recorded are unknown and are never guessed: TestRates, TestHistory.
//   - Calls to a provider stay within its limit across restarts and replicas: TestCallsStayWithinTheLimit.
//   - A status is written only after a change: TestZoneStatus, TestSignalChanged.
//
// If a provider fails, the status retains the last valid response until it expires. If the API server fails, no
// provider is called, because the calls could not be counted.
package zone
