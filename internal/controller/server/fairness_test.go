package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFairness verifies that a caller at its limit does not block other callers, and that the state of a caller is
// removed after its last request.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fairness
		enters := func(caller string) (leave func(), ok bool) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			leave, err := f.enter(ctx, caller, 2)
			return leave, err == nil
		}
		var all []func()
		for _, c := range []struct {
			caller string
			ok     bool
		}{{"greedy", true}, {"greedy", true}, {"greedy", false}, {"other", true}, {"greedy", false}} {
			leave, ok := enters(c.caller)
			if ok != c.ok {
				t.Errorf("enter() of caller %s succeeded: %v", c.caller, ok)
			}
			if ok {
				all = append(all, leave)
			}
		}
		all[0]()
		leave, ok := enters("greedy")
		if !ok {
			t.Fatal("enter() failed after the caller had released a slot")
		}
		for _, leave := range append(all[1:], leave) {
			leave()
		}
		if len(f.of) != 0 {
			t.Errorf("%d callers remain, want 0", len(f.of))
		}
	})
}
