// Package signal keeps carbon intensities and prices of grid zones up to date. A [Keeper] polls the sources that a
// GridZone names, in their order, believes the first that has said something good that is not too old, and completes
// it with a forecast.
//
// open_chain.go makes the sources of a zone, chain.go polls them in their order, a file each makes the requests of one
// kind of source, fetch.go makes them bounded, check.go decides what is believed, reading.go turns it into a status
// from now on and forecasts, keeper.go keeps what came, track.go what was, and state.go is what others see of it.
//
// # Invariants, and the tests that hold them
//
//   - All sources pass one check, of zone, unit, kind, age, range and regularity; average and marginal intensities, and
//     currencies, are never mixed (TestBadSignals, TestENTSOERefuses).
//   - A feed that stands still is broken, though its timestamps move (TestFrozenOverPolls, TestFrozenBehindAForecast).
//   - Each request, tries included, is taken out of a durable budget of calls first; without it nothing is asked
//     (TestCallsPerHour, TestBudgetDown, TestPausesSurviveARestart).
//   - Keys are in no error, log or status, also where a server repeats them (TestKeysStaySecret,
//     TestKeysInAnswersStaySecret).
//   - Requests go only where package controller/dial lets them, and redirects are not followed (TestForgedRequests,
//     TestReboundName, TestRedirectsAreNotFollowed).
//   - Nothing is made up: where nothing is known ahead, the series ends (TestCompletion).
//
// # Failures
//
// A source that fails leaves its place to the next one of the zone (TestFallback), and is asked again after a pause
// that grows, or that the provider names. One that panics has failed (TestSourcePanics). A restart takes what the
// status of the zone still knows, checked like an answer (TestSeed, TestSeedRefuses).
package signal
