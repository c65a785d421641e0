package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// TestUnplacedJobs checks that jobs that do not fit on any node are distinguished from jobs without free capacity.
// Both lower the energy.
func TestUnplacedJobs(t *testing.T) {
	large := func(j *sched.Job) { j.Request.MilliCPU = 1e9 }
	for name, c := range map[string]struct {
		spoil       map[int]func(j *sched.Job) // modifies the jobs that were not placed
		nowhere     int
		description []string
		saysNone    string
	}{
		"all placed": {nil, 0, nil, "empty node"},
		"one too large": {
			map[int]func(*sched.Job){4: large},
			1,
			[]string{"1 job fits on no node even if all are empty, by request or selector."},
			"never got one",
		},
		"a selector and GPUs": {
			map[int]func(*sched.Job){
				3: func(j *sched.Job) { j.Selector = map[string]string{"disk": "ssd"} },
				4: func(j *sched.Job) { j.Request.GPU = 1 },
			},
			2,
			[]string{"2 jobs fit on no node even if all are empty"},
			"never got one",
		},
		"no room alone": {
			map[int]func(*sched.Job){4: func(*sched.Job) {}},
			0,
			[]string{"\nUnplaced jobs fit on an empty node, but never got one and did not run"},
			"no node even",
		},
		"both": {
			map[int]func(*sched.Job){3: large, 4: func(*sched.Job) {}},
			1,
			[]string{
				"1 job fits on no node even if all are empty",
				"\nOther unplaced jobs fit on an empty node, but never got one and did not run",
			},
			"\nUnplaced jobs",
		},
	} {
		s := scenario(t, false)
		r := result(s, "x", 0, false)
		for i, spoil := range c.spoil {
			spoil(&s.Jobs[i])
			r.Outcomes[i] = sim.Outcome{Job: i}
		}
		reported := report.New(&sim.File{}, []*sim.Result{r})
		if reported.Scenario.FitNowhere != c.nowhere || reported.Runs[0].UnplacedJobs != len(c.spoil) {
			t.Errorf("%s: got %d jobs that fit on no node and %d unplaced jobs, want %d and %d",
				name, reported.Scenario.FitNowhere, reported.Runs[0].UnplacedJobs, c.nowhere, len(c.spoil))
		}
		var b bytes.Buffer
		if err := report.Write(&b, reported, "table", false); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.description {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: missing %q in:\n%s", name, want, b.String())
			}
		}
		if strings.Contains(b.String(), c.saysNone) {
			t.Errorf("%s: unexpected %q in:\n%s", name, c.saysNone, b.String())
		}
	}
}

func TestOneJobOnOneNode(t *testing.T) {
	r, _ := compared(t, false)
	r.Scenario.Jobs, r.Scenario.Nodes = 1, 1
	var b bytes.Buffer
	if err := report.Write(&b, r, "table", false); err != nil {
		t.Fatal(err)
	}
	if want := "1 job on 1 node from "; !strings.HasPrefix(b.String(), want) {
		t.Errorf("%q, want %s…", b.String(), want)
	}
}
