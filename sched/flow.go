package sched

// matchByPrices places a whole queue at once.
func matchByPrices(b *batch) { matchInRounds(b) }
