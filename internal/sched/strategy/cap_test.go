package strategy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestCapThrottles plans twelve single-core jobs on a node with ten cores. At the highest intensity only the
// minimum number may run, at the lowest as many as fit. Jobs without remaining delay always start.
func TestCapThrottles(t *testing.T) {
	inner, err := strategy.New("fcfs+now")
	if err != nil {
		t.Fatal(err)
	}
	limited, err := strategy.NewCap(inner, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	series, err := grid.NewSeries(schedtest.Day, time.Hour, []float64{400, 200, 100, 400})
	if err != nil {
		t.Fatal(err)
	}
	at := func(hours int) (started int, woken time.Time) {
		s := &sched.Snapshot{
			Now:   schedtest.Day.Add(time.Duration(hours) * time.Hour),
			Sites: []*sched.Site{{Name: "site", Carbon: grid.Signal{Series: series}}},
		}
		room := sched.Resources{MilliCPU: 10_000, Memory: 1 << 40}
		s.Nodes = []*sched.Node{{Name: "n", Site: s.Sites[0], Capacity: room, Free: room}}
		for i := range 12 {
			s.Queue = append(s.Queue, sched.Job{
				ID: fmt.Sprintf("%02d", i), Submitted: schedtest.Day, Duration: time.Hour, AllowedDelay: 24 * time.Hour,
				Request: sched.Resources{MilliCPU: 1000},
			})
		}
		s.Queue[11].AllowedDelay = 90 * time.Minute // starts first when its delay is exhausted
		for _, d := range limited.Plan(s) {
			if d.Node != "" {
				started++
			}
			if !d.Held(s.Now) {
				continue
			}
			if woken.IsZero() || d.Again.Before(woken) {
				woken = d.Again
			}
			if text := d.Reason.String(); d.Reason.Kind != sched.QuotaUsedUp || !d.InLine() ||
				strings.Contains(text, "0001") || strings.Contains(text, " 0 ") {
				t.Errorf("job %s waits with InLine() = %v: %s", d.Job, d.InLine(), text)
			}
		}
		return started, woken
	}
	if started, woken := at(0); started != 2 || !woken.Equal(schedtest.Day.Add(time.Hour)) {
		t.Errorf("at the highest intensity %d jobs started until %v, want 2 jobs and one hour", started, woken)
	}
	if started, woken := at(1); started <= 2 || started >= 10 || !woken.Equal(schedtest.Day.Add(90*time.Minute)) {
		t.Errorf(
			"at a medium intensity %d jobs started, next decision at %v; want 3 to 9 jobs and the latest start",
			started, woken)
	}
	if started, _ := at(2); started != 10 {
		t.Errorf("at the lowest intensity %d jobs started, want the 10 that fit", started)
	}
}

// TestCapForwards checks that throttled strategies retain their properties, and that strategies that match the
// whole queue cannot be throttled.
func TestCapForwards(t *testing.T) {
	for name, want := range map[string][3]bool{ // interrupts, is clairvoyant, reads live power
		"cap(5-50):carbon+now": {}, "cap(5-50):exec+window": {false, false, true},
		"cap(5-50):carbon+residual": {true, false, false}, "cap(5-50):carbon+wait-awhile": {true, true, false},
	} {
		c, err := strategy.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		throttled := c.(*strategy.Cap)
		if got := [3]bool{throttled.Interrupts(), throttled.Clairvoyant(), throttled.ReadsLive()}; got != want ||
			!throttled.Holds() {
			t.Errorf("%s: got %v with Holds() = %v, want %v", name, got, throttled.Holds(), want)
		}
	}
	for _, name := range []string{"cap(5-50):ecsched-dp", "cap(5-50):ecsched-ml+window", "cap(5-50):min-min"} {
		if _, err := strategy.ByName(name); err == nil || !strings.Contains(err.Error(), "whole queue") {
			t.Errorf("%s: unexpected error: %v", name, err)
		}
	}
	for name, want := range map[string]bool{
		"carbon": false, "carbon+window": true, "cap(5-50):carbon+now": true, "cap(5-50):carbon": true,
		"fcfs+now/shortest": false, "nothing": false,
	} {
		if got := strategy.Holds(name); got != want {
			t.Errorf("Holds(%s) = %v", name, got)
		}
	}
}

func TestByName(t *testing.T) {
	for _, name := range []string{"carbon+window", "cap(20-200):carbon+now", "cap(5-5):fcfs+now/shortest"} {
		strategy, err := strategy.ByName(name)
		if err != nil || fmt.Sprint(strategy) != name {
			t.Errorf("ByName(%s) = %v, %v", name, strategy, err)
		}
	}
	for _, name := range []string{
		"cap(200-20):carbon+now", "cap(0-2):carbon+now", "cap(1-x):carbon", "cap(5):carbon", "cap(1-5)carbon",
		"cap(1-5):nothing",
	} {
		if strategy, err := strategy.ByName(name); err == nil {
			t.Errorf("%s: got %v, want an error", name, strategy)
		} else if text := err.Error(); strings.HasPrefix(text, " ") {
			t.Errorf("%s: error starts with a space: %q", name, text)
		}
	}
}

// TestCapTakesNoPlan checks that strategies that decide on the whole queue cannot be throttled.
func TestCapTakesNoPlan(t *testing.T) {
	for _, name := range []string{"cap(2-8):carbon+plan", "cap(2-8):flow-energy"} {
		if _, err := strategy.ByName(name); err == nil || !strings.Contains(err.Error(), "whole queue") {
			t.Errorf("%s: unexpected error: %v", name, err)
		}
	}
}
