package report

import (
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// sums contains the terms of the ratios of a row, added up over trials.
type sums struct {
	trials         int
	saved, optimum float64 // fractions of the baseline
	grams, best    float64 // grams that the strategy and the optimum save
	base           float64 // grams of the baselines, in absolute values
	suspending     float64 // fraction of the baseline that the interruptible optimum saves
}

func (s *sums) add(o sums) {
	s.trials += o.trials
	s.saved += o.saved
	s.optimum += o.optimum
	s.grams += o.grams
	s.best += o.best
	s.base += o.base
	s.suspending += o.suspending
}

func (s *sums) saving() float64   { return over(s.saved, float64(s.trials)) }
func (s *sums) eta() float64      { return share(s.saved, s.optimum, float64(s.trials)) }
func (s *sums) etaGrams() float64 { return share(s.grams, s.best, s.base) }
func (s *sums) ofOther() float64  { return share(s.saved, s.suspending, float64(s.trials)) }

// possible reports whether emissions can be saved.
func (s *sums) possible() bool { return !math.IsNaN(s.eta()) }

// minPossible is the minimum fraction of the baseline that counts as a possible saving. Smaller values are rounding
// errors of sums over many jobs.
const minPossible = 1e-10

// share returns the saved fraction of the possible saving, or NaN if no saving is possible.
func share(saved, possible, baseline float64) float64 {
	if possible <= minPossible*baseline {
		return math.NaN()
	}
	return saved / possible
}

// sumGrid contains the sums of a row by zone and start.
type sumGrid [][]sums

// in returns the part of the grid for one zone.
func (g sumGrid) in(zone int) sumGrid { return g[zone : zone+1] }

// over adds up the sums of all zones and the given starts.
func (g sumGrid) over(starts []int) (all sums) {
	for _, zone := range g {
		for _, i := range starts {
			all.add(zone[i])
		}
	}
	return all
}

// figure returns a function that computes a figure for given starts.
func (g sumGrid) figure(fn func(*sums) float64) func(starts []int) float64 {
	return func(starts []int) float64 {
		all := g.over(starts)
		return fn(&all)
	}
}

// meanEta returns the mean η of the zones with possible savings.
func (g sumGrid) meanEta(starts []int) float64 {
	sum, zones := 0.0, 0.0
	for z := range g {
		if all := g.in(z).over(starts); all.possible() {
			sum += all.eta()
			zones++
		}
	}
	return sum / zones
}

// interval returns a figure of the quoted starts with its interval. Resamples with an undefined figure are
// ignored.
func (c *sweeper) interval(fn func(starts []int) float64) Interval {
	i := Interval{Value: fn(c.quoted)}
	if len(c.drawn) == 0 {
		return i
	}
	values := slices.DeleteFunc(sliceutil.Map(c.drawn, fn), math.IsNaN)
	if len(values) == 0 {
		return i
	}
	slices.Sort(values)
	i.Low, i.High = new(between(values, lowTail)), new(between(values, highTail))
	return i
}

// row aggregates the trials of one strategy with one forecast and one restart cost.
func (c *sweeper) row(key Variant) *SweepRow {
	row := &SweepRow{Variant: key}
	row.NodeEnergy = map[string]float64{}
	cells := make(sumGrid, len(c.zones))
	for z := range cells {
		cells[z] = make([]sums, max(c.starts, len(c.seeds)))
		row.ByZone = append(row.ByZone, ZoneRow{Zone: c.zones[z]})
	}
	known := true
	for _, t := range c.rows[key] {
		base, _ := c.baseline(t) // newSweeper has verified that it exists
		cell := sums{
			trials: 1, saved: Saving(base.Grams, t.Grams), grams: base.Grams - t.Grams, base: math.Abs(base.Grams),
		}
		if least, ok := t.Optima[t.Family]; ok {
			cell.optimum, cell.best = Saving(base.Grams, least), base.Grams-least
			cell.suspending = Saving(base.Grams, t.Optima[Interruptible])
		} else {
			known = false
		}
		z := slices.Index(c.zones, t.Zone)
		cells[z][c.sample(t)].add(cell)
		if c.options.Quotes(t.StartIndex) {
			row.include(t, base)
			zone := &row.ByZone[z]
			zone.Grams += t.Grams
			zone.BaselineGrams += base.Grams
			zone.MeanWaitHours += t.MeanWait / 3600
		}
	}
	row.finish(c.options.CarbonPrice)
	c.rate(row, cells, known)
	c.byZone(row, cells, known)
	return row
}

// include adds the figures of a trial to the sums of the row.
func (r *SweepRow) include(t, base *Trial) {
	r.Trials++
	r.Family, r.Priced = t.Family, t.Priced
	r.Counts.add(&t.Counts)
	r.BaselineGrams += base.Grams
	r.MeanWaitHours += t.MeanWait / 3600
	r.P95WaitHours += t.P95Wait / 3600
	r.TurnaroundHours += t.Turnaround / 3600
	r.Suspensions += over(float64(t.Suspensions), float64(t.Jobs))
	r.LostHours += t.Lost.Hours()
}

// finish converts sums over the trials into means.
func (r *SweepRow) finish(carbonPrice float64) {
	n := float64(r.Trials)
	for _, v := range []*float64{&r.MeanWaitHours, &r.P95WaitHours, &r.TurnaroundHours, &r.Suspensions} {
		*v = over(*v, n)
	}
	r.AdjustedCost = adjustedCost(r.Cost, r.Grams, carbonPrice)
}

// mean returns the mean over the row's trials for a sum over them.
func (r *SweepRow) mean(sum float64) float64 { return over(sum, float64(r.Trials)) }

// rate sets the savings and η over all zones.
func (c *sweeper) rate(row *SweepRow, cells sumGrid, known bool) {
	row.Saving = c.interval(cells.figure((*sums).saving))
	if !known {
		return
	}
	// η is not defined if no saving is possible.
	some := func(i Interval) *Interval {
		if math.IsNaN(i.Value) {
			return nil
		}
		return &i
	}
	row.Eta = some(c.interval(cells.figure((*sums).eta)))
	row.EtaGrams = some(c.interval(cells.figure((*sums).etaGrams)))
	row.EtaMean = some(c.interval(cells.meanEta))
	if row.Family == NonPreemptive {
		row.EtaInterruptible = some(c.interval(cells.figure((*sums).ofOther)))
	}
	var others []int
	for i := range c.starts {
		if !c.options.Quotes(i) {
			others = append(others, i)
		}
	}
	if other := cells.over(others); other.possible() {
		row.EtaOther = new(other.eta())
	}
}

func (c *sweeper) byZone(row *SweepRow, cells sumGrid, known bool) {
	for z := range row.ByZone {
		zone, in := &row.ByZone[z], cells.in(z)
		all := in.over(c.quoted)
		zone.MeanWaitHours = over(zone.MeanWaitHours, float64(all.trials))
		zone.Saving = c.interval(in.figure((*sums).saving))
		if known && all.possible() {
			zone.Eta = new(c.interval(in.figure((*sums).eta)))
			zone.OptimumSaving = new(all.optimum / float64(all.trials))
			if row.WorstEta == nil || zone.Eta.Value < *row.WorstEta {
				row.WorstZone, row.WorstEta = zone.Zone, new(zone.Eta.Value)
			}
		}
	}
}
