package controller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestTwoControllers has two controllers book into one database at once. Batches go to either, some to both at the same
// moment, and both sum up; one after the other is killed now and then.
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
		if i%4 == 3 { // both: they sum up as soon as they begin, and here at the same moment
			two[0].Kill()
			two[1].Kill()
			two[0].launch(t)
			two[1].begin(t)
			kit.Eventually(t, time.Minute, "the other one answers", func() bool { return two[0].answers(t) })
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
		time.Sleep(time.Minute) // both sum up twice, while agents deliver
	}
	steps := h.finish(t, 2*time.Minute)
	t.Logf("%d times controllers were killed, %d times agents; %v", kills, h.kills(), wi)
	wi.check(t)
	for _, c := range two {
		c.verify(t, h.began, steps, nil)
		if err := c.Stop(time.Minute); err != nil {
			t.Error(err)
		}
	}
	e.whole(t, two[0], len(steps))
}
