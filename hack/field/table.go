package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/report"
)

const (
	worse = 0.3 // increase of emissions in percent from which an instance counts as worse
	flat  = 0.15
	level = 0.05 // of intervals and tests
)

// The limits on late starts: the percentage of held jobs with capacity at their submission, the percentage of other
// jobs above that of the reference, and the 99th percentile above that of the reference.
const (
	maxLateHeld  = 0.1
	maxLateOther = 0.5
	maxLateness  = 15 * time.Minute
)

// results contains the results by arm and instance.
type results map[string]map[int]*row

// print writes the tables of results: all instances, flat grids, and instances by power mode and utilization.
func (o *options) print(to io.Writer) error {
	rows, err := o.read()
	if err != nil {
		return err
	}
	all := results{}
	for i := range rows {
		r := &rows[i]
		if all[r.Arm] == nil {
			all[r.Arm] = map[int]*row{}
		}
		all[r.Arm][r.Instance.ID] = r
	}
	all.table(to, "All instances")
	all.only(func(in *Instance) bool { return in.Swing < flat }).table(to, "Daily swing below 15 %")
	met := map[string]map[int]bool{} // by arm: instances of the rows in which it meets the limits on late starts
	for _, power := range []string{StayOn, Sleep, Autoscaled} {
		for _, target := range Utilization {
			some := all.only(func(in *Instance) bool { return in.Power == power && in.Target == target })
			some.table(to, fmt.Sprintf("Machines %s, utilization %.0f %%", power, 100*target))
			for arm, rows := range some {
				if met[arm] == nil {
					met[arm] = map[int]bool{}
				}
				for id := range rows {
					met[arm][id] = some.punctual(arm)
				}
			}
		}
	}
	fmt.Fprintf(to, "\n## %s relative to other arms, where these meet the limits on late starts\n\n", ours)
	fmt.Fprint(to, "| arm | n | difference |\n|---|---|---|\n")
	for _, a := range arms {
		some := all.only(func(in *Instance) bool { return met[a.name][in.ID] })
		if d := some.differences(ours, a.name); len(d) > 1 && a.name != ours {
			fmt.Fprintf(to, "| %s | %d | %s |\n", a.name, len(d), interval(d, " points"))
		}
	}
	return nil
}

// only returns the results of the instances that satisfy a condition.
func (r results) only(ok func(*Instance) bool) results {
	some := results{}
	for arm, rows := range r {
		some[arm] = map[int]*row{}
		for id, row := range rows {
			if ok(&row.Instance) {
				some[arm][id] = row
			}
		}
	}
	return some
}

// differences returns the emissions of an arm minus those of another one, by instance, in percent of energy.
func (r results) differences(arm, other string) (d []float64) {
	for id, a := range r[arm] {
		if b, base := r[other][id], r["energy"][id]; b != nil && base != nil {
			d = append(d, 100*(a.Grams-b.Grams)/base.Grams)
		}
	}
	return d
}

// table writes a row for each arm.
func (r results) table(to io.Writer, title string) {
	if len(r["energy"]) < 2 {
		return
	}
	fmt.Fprintf(to, "\n## %s\n\n| arm | relative to | n | emissions | kg | energy | worse | worst | added wait | "+
		"late, held with capacity | late, others | p99 of lateness | boots |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n", title)
	for _, a := range arms {
		reference := cmp.Or(a.reference, "energy")
		s := r.compare(a.name, reference)
		if len(s.change) < 2 {
			continue
		}
		worst := "–"
		if s.concerned > 0 {
			worst = fmt.Sprintf("%+.2f %% (%d)", s.worst, s.at)
		}
		fmt.Fprintf(to, "| %s | %s | %d | %s | %s | %s | %d of %d | %s | %v | %.2f %% | %.2f %% | %v | %s |\n",
			a.name, reference, len(s.change), interval(s.change, " %"), interval(s.kg, ""), interval(s.kWh, " %"),
			s.worse, s.concerned, worst, s.wait.Round(time.Second), s.lateHeld(), s.lateOther(),
			s.p99().Round(time.Second), interval(s.boots, ""))
	}
	r.best(to)
}

// best writes the arms that meet the limits on late starts and emit significantly less than ours by more than half
// a point (one-sided t-tests, Holm 1979).
func (r results) best(to io.Writer) {
	type rival struct {
		name string
		d    []float64
		t    float64
	}
	var rivals []rival
	for _, a := range arms {
		d := r.differences(ours, a.name)
		if a.name == ours || a.reference != "" || a.strategy == "" || len(d) < 2 ||
			!r.punctual(a.name) {
			continue
		}
		m := report.MeanOf(d, level)
		rivals = append(rivals, rival{a.name, d, (m.Value - 0.5) / (*m.High - m.Value)})
	}
	slices.SortFunc(rivals, func(a, b rival) int { return cmp.Compare(b.t, a.t) })
	for i, v := range rivals {
		if m := report.MeanOf(v.d, 2*level/float64(len(rivals)-i)); *m.Low <= 0.5 {
			return
		}
		fmt.Fprintf(to, "\n%s is significantly below %s: %s\n", v.name, ours, interval(v.d, " points"))
	}
}

// interval returns a mean with its confidence interval.
func interval(values []float64, unit string) string {
	m := report.MeanOf(values, level)
	return fmt.Sprintf("%+.2f ± %.2f%s", m.Value, *m.High-m.Value, unit)
}

// summary compares an arm with a reference.
type summary struct {
	change, kg, kWh, boots []float64
	worse, concerned       int
	worst                  float64
	at                     int // instance of worst
	wait                   time.Duration
	held, jobs, heldLate   int
	late                   []time.Duration
}

// compare compares an arm with a reference on the instances of both. Shares of worse instances refer to those in
// which at least one tenth of the jobs that may wait were held.
func (r results) compare(arm, reference string) (s summary) {
	s.worst = math.Inf(-1)
	for id, a := range r[arm] {
		b := r[reference][id]
		if b == nil {
			continue
		}
		change := 100 * (a.Grams/b.Grams - 1)
		s.change, s.kg = append(s.change, change), append(s.kg, (a.Grams-b.Grams)/1000)
		s.kWh, s.boots = append(s.kWh, 100*(a.KWh/b.KWh-1)), append(s.boots, float64(a.Boots-b.Boots))
		s.wait += a.Wait - b.Wait
		s.jobs += a.Instance.Jobs
		s.held += a.Held
		for _, l := range a.Late {
			s.late = append(s.late, l.By)
			if l.Held && l.Capacity {
				s.heldLate++
			}
		}
		if a.Held*10 < a.Instance.May {
			continue
		}
		if s.concerned++; change > worse {
			s.worse++
		}
		if change > s.worst {
			s.worst, s.at = change, id
		}
	}
	s.wait /= time.Duration(max(len(s.change), 1))
	slices.Sort(s.late)
	return s
}

func (s *summary) lateHeld() float64 { return 100 * float64(s.heldLate) / float64(max(s.held, 1)) }

func (s *summary) lateOther() float64 {
	return 100 * float64(len(s.late)-s.heldLate) / float64(max(s.jobs, 1))
}

// p99 returns the 99th percentile of the lateness of all jobs.
func (s *summary) p99() time.Duration {
	if k := len(s.late) - 1 - s.jobs/100; k >= 0 {
		return s.late[k]
	}
	return 0
}

// punctual reports whether an arm meets the limits on late starts relative to energy.
func (r results) punctual(arm string) bool {
	s, base := r.compare(arm, "energy"), r.compare("energy", "energy")
	return s.lateHeld() <= maxLateHeld && s.lateOther() <= base.lateOther()+maxLateOther &&
		s.p99() <= base.p99()+maxLateness
}
