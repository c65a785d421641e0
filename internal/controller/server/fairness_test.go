package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

// TestFairness verifies that a caller at its limit does not block other callers.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{callers: lru.New(maxCallers), queries: make(chan struct{}, maxQueries)}
		enters := func(caller string) (leave func(), ok bool) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			leave, err := s.acquire(access.WithUser(ctx, &access.User{Username: caller}), false)
			return leave, err == nil
		}
		var all []func()
		for _, c := range []struct {
			caller string
			ok     bool
		}{{"greedy", true}, {"greedy", true}, {"greedy", false}, {"other", true}, {"greedy", false}} {
			leave, ok := enters(c.caller)
			if ok != c.ok {
				t.Errorf("acquire() of caller %s succeeded: %v", c.caller, ok)
			}
			if ok {
				all = append(all, leave)
			}
		}
		all[0]()
		leave, ok := enters("greedy")
		if !ok {
			t.Fatal("acquire() failed after the caller had released a slot")
		}
		for _, leave := range append(all[1:], leave) {
			leave()
		}
		if len(s.queries) != 0 {
			t.Errorf("%d queries remain, want 0", len(s.queries))
		}
	})
}
