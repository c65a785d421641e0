package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sim"
)

// TestLateReplayIsNotValid verifies that results are marked if pods started later than simulated.
func TestLateReplayIsNotValid(t *testing.T) {
	for _, test := range []struct {
		late  time.Duration
		valid bool
	}{{10 * time.Minute, true}, {11 * time.Minute, false}} {
		at := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
		measured := &sim.Result{Strategy: "stock", Accounted: at}
		simulated := &sim.Result{Strategy: "stock (simulated)", Accounted: at}
		for range 2 {
			const queued = time.Hour // without capacity, in both
			simulated.Outcomes = append(simulated.Outcomes, sim.Outcome{Released: at, Start: at.Add(queued)})
			measured.Outcomes = append(measured.Outcomes, sim.Outcome{Released: at, Start: at.Add(queued + test.late)})
		}
		all, invalid, err := compare([]*sim.Result{measured}, []*sim.Result{simulated}, 10*time.Minute)
		if err != nil || len(all) != 2 || all[1] != simulated {
			t.Fatalf("results %v, error %v", all, err)
		}
		if marked := strings.HasSuffix(all[0].Strategy, " (not valid)"); marked == test.valid ||
			(invalid == "") != test.valid {
			t.Errorf("%v late: strategy %q, reason %q", test.late, all[0].Strategy, invalid)
		}
	}
}
