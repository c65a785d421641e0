package sched

// cheapestTariff is the when "price": the window of least price, whatever other weights say.
func cheapestTariff(s *Snapshot, j *Job) (Window, Reason) { return cheapest(s, j, priceAlone) }
