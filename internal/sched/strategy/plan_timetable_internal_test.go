package strategy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// randomTimetable returns a timetable of machines, including busy and awake ones, and bookings that may wait.
func randomTimetable(t *testing.T, r *rand.Rand) (*timetable, []booking) {
	t.Helper()
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	values := make([]float64, 48)
	for i := range values {
		values[i] = 50 + 400*r.Float64()
	}
	carbon, err := grid.NewSeries(now, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	profiles := []*energy.Profile{
		{Idle: 60, Max: 120, Sleep: 5, WakeUp: 9000, Quality: energy.Measured},
		{Idle: 90, Max: 300, Exponent: 1.4, Sleep: 90, Quality: energy.Measured},
	}
	s := &sched.Snapshot{Now: now, Sites: []*sched.Site{site}}
	nodes := make([]sched.Node, 4)
	for i := range nodes {
		capacity := sched.Resources{MilliCPU: 8000, Memory: 1 << 34}
		n := sched.Node{
			Name: fmt.Sprint("n", i), Site: site, Capacity: capacity, Free: capacity, Profile: profiles[i%2],
			Awake: r.IntN(2) == 0,
		}
		if r.IntN(3) == 0 {
			runs := sched.Resources{MilliCPU: 1000 * int64(1+r.IntN(4)), Memory: 1 << 30}
			n = n.Place(runs)
			if r.IntN(2) == 0 {
				n.Ends = []sched.End{{At: now.Add(time.Duration(r.IntN(200)) * time.Minute), Request: runs}}
			}
		}
		if r.IntN(3) == 0 {
			n.Free.MilliCPU -= 500 // used by a DaemonSet
		}
		nodes[i] = n
	}
	bookings := make([]booking, 12)
	for i := range bookings {
		j := &sched.Job{
			ID: fmt.Sprint("j", i), Submitted: now, Duration: time.Duration(1+r.IntN(15)) * 10 * time.Minute, // whole slots
			Request: sched.Resources{MilliCPU: 500 * int64(1+r.IntN(12)), Memory: 1 << 28},
		}
		bookings[i] = booking{
			job: j, index: i, latest: time.Duration(r.IntN(16)) * 20 * time.Minute, place: nowhere,
		}
		bookings[i].earliest = bookings[i].latest * time.Duration(r.IntN(3)) / 2
	}
	table := newTimetable(s, nodes, 10*time.Minute, 80)
	if r.IntN(2) == 0 {
		table.expectOthers()
	}
	return table, bookings
}

// TestBegunSlotsCostTheirRest checks that a job is only charged for the rest of the current slot.
func TestBegunSlotsCostTheirRest(t *testing.T) {
	begins := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	carbon, err := grid.NewSeries(begins, 10*time.Minute, []float64{100, 200, 300, 400, 400, 400})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	all := sched.Resources{MilliCPU: 8000}
	n := sched.Node{Name: "n", Site: site, Capacity: all, Free: all, Awake: true, Profile: &energy.Profile{Max: 100}}
	now := begins.Add(7 * time.Minute)
	job := sched.Job{Submitted: now, Duration: 16 * time.Minute, Request: all}
	table := newTimetable(&sched.Snapshot{Now: now, Sites: []*sched.Site{site}, Queue: []sched.Job{job}}, []sched.Node{n}, 10*time.Minute, 6)
	p := booking{job: &job, earliest: table.offset(), latest: table.offset(), place: nowhere}
	table.insert(&p, nil)
	want := 100 * 60 * (3*100 + 10*200 + 3*300) / energy.JoulesPerKWh
	if math.Abs(p.cost-want) > 1e-9*want || table.start(&p, p.slot) != 7*time.Minute {
		t.Errorf("job starts after %v and costs %v, want %v", table.start(&p, p.slot), p.cost, want)
	}
}

// TestWhatRunsTakesRoom checks that running jobs use capacity from the first slot on, whether or not their end is
// known.
func TestWhatRunsTakesRoom(t *testing.T) {
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	all := sched.Resources{MilliCPU: 8000}
	n := sched.Node{
		Name: "n", Capacity: all, Free: sched.Resources{MilliCPU: 2500}, Jobs: 2, Profile: &energy.Profile{Idle: 50, Max: 100},
		Ends: []sched.End{{At: now.Add(25 * time.Minute), Request: sched.Resources{MilliCPU: 3000}}},
	}
	r := &newTimetable(&sched.Snapshot{Now: now}, []sched.Node{n}, 10*time.Minute, 6).rows[0]
	for k, want := range []int64{5500, 5500, 5500, 2500, 2500, 2500} {
		if got := r.used[k].MilliCPU; got != want || r.jobs[k] == 0 {
			t.Errorf("slot %d: %d millicores used by %d jobs, want %d", k, got, r.jobs[k], want)
		}
	}
	n.Jobs, n.Ends, n.Free = 0, nil, sched.Resources{MilliCPU: 7500}
	r = &newTimetable(&sched.Snapshot{Now: now}, []sched.Node{n}, 10*time.Minute, 6).rows[0]
	if r.used[0].MilliCPU != 500 || r.jobs[0] != 0 {
		t.Errorf("pod of a DaemonSet: %d millicores used by %d jobs, want 500 by 0 jobs", r.used[0].MilliCPU, r.jobs[0])
	}
}

// TestKeptPlacesGoToTheNearestSlot checks that a previously planned start between two slots is moved to the nearer
// one, but not beyond the latest start, so that starts do not drift from plan to plan.
func TestKeptPlacesGoToTheNearestSlot(t *testing.T) {
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	n := sched.Node{
		Name: "n", Capacity: sched.Resources{MilliCPU: 8000}, Free: sched.Resources{MilliCPU: 8000}, Awake: true,
		Profile: &energy.Profile{Idle: 50, Max: 100},
	}
	for _, tc := range []struct{ planned, latest, want time.Duration }{
		{36, 300, 40}, {34, 300, 30}, {36, 37, 30}, {3, 300, 0},
	} {
		job := &sched.Job{Duration: time.Hour, Place: sched.Place{Node: "n", Start: now.Add(tc.planned * time.Minute)}}
		table := newTimetable(&sched.Snapshot{Now: now}, []sched.Node{n}, 10*time.Minute, 40)
		bookings := []booking{{job: job, latest: tc.latest * time.Minute, place: nowhere}}
		table.restore(bookings)
		if p := &bookings[0]; p.row != 0 || table.start(p, p.slot) != tc.want*time.Minute {
			t.Errorf("planned in %d minutes with the latest start in %d: got row %d after %v, want %d minutes",
				tc.planned, tc.latest, p.row, table.start(p, p.slot), tc.want)
		}
	}
}

// TestBookingsCostWhatTheyAdd checks that the cost of a booking equals the increase in the total cost, with and without
// known places, and that no machine is overcommitted.
func TestBookingsCostWhatTheyAdd(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		table, bookings := randomTimetable(t, r)
		if seed%2 == 0 {
			table.known = make([]known, 40)
			table.reserve()
		}
		before := table.total()
		for step := range 60 {
			p := &bookings[r.IntN(len(bookings))]
			previous := p.place
			table.remove(p)
			without := table.total()
			if row := r.IntN(len(table.rows)); table.known != nil && table.rows[row].offers(p.job) {
				if got, want := table.cheapest(p, row, false), table.best(p, row, false); got.row != want.row ||
					want.row >= 0 && (got.slot != want.slot || got.cost != want.cost) {
					t.Fatalf("seed %d, step %d: the known place is %+v, want %+v", seed, step, got, want)
				}
			}
			onTime := previous.row >= 0 && table.start(p, previous.slot) <= p.latest
			if onTime && math.Abs(before-without-table.costs(p, previous)) > 1e-9*before {
				t.Fatalf("seed %d, step %d: removing the booking saves %v, but its cost is %v",
					seed, step, before-without, table.costs(p, previous))
			}
			skipped := make([]bool, len(table.rows))
			for k := range skipped {
				skipped[k] = r.IntN(3) == 0
			}
			table.insert(p, skipped)
			after := table.total()
			late := p.row >= 0 && table.start(p, p.slot) > p.latest
			if p.row >= 0 && !late && math.Abs(after-without-p.cost) > 1e-9*max(after, 1) {
				t.Fatalf("seed %d, step %d: the booking adds %v, but its cost is %v", seed, step, after-without, p.cost)
			}
			for i := range table.rows {
				for k, used := range table.rows[i].used {
					if !used.Within(table.rows[i].node.Capacity) {
						t.Fatalf("seed %d, step %d: slot %d of row %d is overcommitted: %v", seed, step, k, i, used)
					}
				}
			}
			before = after
		}
	}
}

// TestBookingsGetTheCheapestPlace checks that no other place of a booking has a lower cost.
func TestBookingsGetTheCheapestPlace(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		table, bookings := randomTimetable(t, r)
		for k := range bookings {
			p := &bookings[k]
			table.insert(p, nil)
			got := *p
			if p.row < 0 {
				continue
			}
			table.remove(p)
			base := table.total()
			for row := range table.rows {
				for slot := range table.slots {
					at := booking{job: p.job, earliest: p.earliest, latest: p.latest, place: place{row: row, slot: slot}}
					start := table.start(&at, slot)
					end, _, _ := table.ends(start, table.rows[row].node.Runtime(p.job))
					if slot < int(p.earliest/table.slot) || start > p.latest || end > table.slots {
						continue
					}
					table.put(&at, 1)
					cost, fits := table.total()-base, true
					for _, used := range table.rows[row].used {
						fits = fits && used.Within(table.rows[row].node.Capacity)
					}
					table.put(&at, -1)
					if fits && cost < got.cost-1e-9*math.Abs(got.cost) {
						t.Fatalf("seed %d: job %s costs %v in slot %d of row %d, but was placed at a cost of %v",
							seed, p.job.ID, cost, slot, row, got.cost)
					}
				}
			}
			*p = got
			table.put(p, 1)
		}
	}
}
