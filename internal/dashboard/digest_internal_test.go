package dashboard

import (
	"net"
	"testing"
	"time"
)

// The passage of time is not a change. The time at which a budget will be exhausted is extrapolated from the
// current time.
func TestTimeIsNoNews(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	m := &Model{Now: now, From: now, To: now.Add(time.Hour), Budgets: []Budget{{Name: "month", Percent: 40, UsedUp: &now}}}
	digest := func() string {
		return NewServer(&Folder{[]*Model{m}}, &net.TCPAddr{}, time.Now).digest(t.Context())
	}
	before := digest()
	m.Now, m.Budgets[0].UsedUp = now.Add(time.Minute), new(now.Add(time.Second))
	if digest() != before {
		t.Error("the digest changed within a minute")
	}
	if m.Budgets[0].Percent = 41; digest() == before {
		t.Error("the digest does not depend on the usage of a budget")
	}
}
