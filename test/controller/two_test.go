package controller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestTwoControllers runs two controllers that share one database. Batches are sent to either controller and
// sometimes to both at the same time, and both controllers fold the journal. The controllers are killed repeatedly.
func TestTwoControllers(t *testing.T) {
	w := shared
	e := &engine{name: "postgres", dsn: pgtest.Start(t)}
	h := w.newHerd(t, 4)
	args := []string{"--agentless=false", "--host-tokens-file=" + h.tokens}
	two := []*controllerProcess{w.controller(t, e.env(), args...), w.controller(t, e.env(), args...)}
	wi := newWire(t, two...)
	wi.twice = true
	h.connect(wi)
	kills, agents := 4, 2
	if long() {
		kills, agents = 40, 40
	}
	killed := h.start(agents)
	for i := range kills {
		time.Sleep(rand.N(2 * time.Second))
		if i%4 == 3 { // kill both, because they fold the journal at startup
			two[0].Kill()
			two[1].Kill()
			two[0].launch(t)
			two[1].begin(t)
			kit.Eventually(t, time.Minute, "the other controller responds to requests",
				func() bool { return two[0].answers(t) })
			continue
		}
		c := two[i%2]
		c.Kill()
		c.begin(t)
	}
	if err := killed(); err != nil {
		t.Fatal(err)
	}
	if long() {
		time.Sleep(time.Minute) // both fold the journal twice while agents deliver batches
	}
	steps := h.finish(t, 2*time.Minute)
	t.Logf("killed controllers %d times and agents %d times; %v", kills, h.kills(), wi)
	wi.check(t)
	for _, c := range two {
		c.verify(t, h.began, steps, nil)
		if err := c.Stop(time.Minute); err != nil {
			t.Error(err)
		}
	}
	e.whole(t, two[0], len(steps))
}
