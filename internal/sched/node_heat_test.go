package sched_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func TestHeat(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var h sched.Heat
	for i, step := range []struct {
		after          time.Duration
		celsius, limit energy.Celsius
		refuses        bool
	}{
		{0, 80, 80, false},
		{time.Minute, 80.5, 80, true},
		{time.Minute, 76, 80, true}, // not clearly below the limit
		{time.Minute, 75, 80, false},
		{time.Minute, 79, 80, false}, // not above the limit since
		{time.Minute, 99, 0, false},  // the limit was removed
		{time.Minute, 99, 80, true},
		{time.Minute, 99, 103, true}, // the limit was raised, but not sufficiently
		{time.Minute, 99, 104, false},
		{time.Minute, 99, 80, true},
		{4 * time.Minute, 79, 80, false}, // the previous reading is outdated
	} {
		now = now.Add(step.after)
		h = h.Next(step.celsius, step.limit, now)
		why, refuses := h.Refuses(now)
		if refuses != step.refuses || refuses && !strings.Contains(why, "°C") {
			t.Errorf("step %d: Refuses() = %v, %q", i, refuses, why)
		}
	}
	h = h.Next(90, 80, now)
	if why, refuses := h.Refuses(now.Add(3 * time.Minute)); !refuses ||
		why != "node overheated: 90 °C exceeds the limit of 80 °C, new pods are accepted again at 75 °C" {
		t.Errorf("after 3 minutes: Refuses() = %v, %q", refuses, why)
	}
	if why, refuses := h.Refuses(now.Add(3*time.Minute + time.Second)); refuses || why != "" {
		t.Errorf("outdated reading rejects jobs: %q", why)
	}
	if _, refuses := (sched.Heat{}).Refuses(now); refuses {
		t.Error("node with unknown temperature rejects jobs")
	}
}
