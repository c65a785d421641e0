// Package signal keeps carbon intensities and electricity prices of grid zones up to date. A [Keeper] polls the
// sources of a GridZone in their order, uses the first one with a valid and recent answer, and extends it with a
// forecast.
//
// open_chain.go creates the sources of a zone and chain.go polls them in their order. Each kind of source has a
// file that builds its requests. fetch.go sends them within limits, check.go validates answers, and reading.go
// converts an answer to a status with a forecast. keeper.go stores the status, history.go keeps past values and trains
// forecasts on them, and state.go provides the current state.
//
// # Invariants and their tests
//
//   - The answers of all sources are validated in the same way: zone, unit, kind, age, range and regularity.
//     Average and marginal intensities are never mixed, and neither are currencies (TestBadSignals,
//     TestENTSOERefuses).
//   - A feed with constant values is considered broken, even if its timestamps advance (TestFrozenOverPolls,
//     TestFrozenBehindAForecast).
//   - Every request, including retries, is reserved in a durable budget. Without the budget, no requests are sent
//     (TestCallsPerHour, TestBudgetDown, TestPausesSurviveARestart).
//   - Keys never appear in errors, logs or statuses, even if a server echoes them (TestKeysStaySecret,
//     TestKeysInAnswersStaySecret).
//   - Requests are only sent to addresses that package controller/dial allows, and redirects are not followed
//     (TestForgedRequests, TestReboundName, TestRedirectsAreNotFollowed).
//   - Values are never invented. Without a forecast, the series ends (TestCompletion).
//
// # Failures
//
// If a source fails, the next source of the zone is used (TestFallback), and the failed one is retried with a
// backoff or after the delay requested by the provider. A panic in a source counts as a failure (TestSourcePanics).
// After a restart, the status of the zone is reused after validating it like an answer (TestSeed, TestSeedRefuses).
package signal
