package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

func TestClustersSelect(t *testing.T) {
	own, guest, alpha := &ledger.Account{}, &ledger.Account{Host: "host"}, &ledger.Account{Host: "alpha/host"}
	for name, c := range map[string]struct{ own, other bool }{
		ledger.OwnCluster: {own: true}, "home": {own: true}, "alpha": {other: true}, "": {}, "host": {},
	} {
		q := &ledger.Query{Clusters: []string{name}, Own: "home"}
		if q.Selects(own) != c.own || q.Selects(guest) != c.own || q.Selects(alpha) != c.other {
			t.Errorf("cluster %q selects own %t, guest %t, alpha %t", name, q.Selects(own), q.Selects(guest), q.Selects(alpha))
		}
	}
}

func TestPlan(t *testing.T) {
	hour := begin.Add(90 * time.Minute)
	for name, c := range map[string]struct {
		q    ledger.Query
		want ledger.Plan
	}{
		"whole days": {
			ledger.Query{From: begin, To: begin.Add(48 * time.Hour)},
			ledger.Plan{Resolution: 24 * time.Hour, Nodes: true},
		},
		"hours of them": {
			ledger.Query{From: begin, To: begin.Add(48 * time.Hour), GroupBy: []ledger.Dimension{ledger.ByHour}},
			ledger.Plan{Resolution: time.Hour, Nodes: true, ByHour: true},
		},
		"a part of a day": {
			ledger.Query{From: hour, To: begin.Add(48 * time.Hour), GroupBy: []ledger.Dimension{ledger.ByOwner}},
			ledger.Plan{From: begin.Add(time.Hour), Resolution: time.Hour},
		},
		"pods": {
			ledger.Query{From: hour, To: hour.Add(time.Second), GroupBy: []ledger.Dimension{ledger.ByPod}},
			ledger.Plan{From: hour, To: hour.Add(5 * time.Minute), Resolution: 5 * time.Minute, Windows: true, ByPod: true},
		},
		"namespaces of a node": {
			ledger.Query{
				From: begin, To: begin.Add(time.Hour), Nodes: []string{"n"},
				GroupBy: []ledger.Dimension{ledger.ByNamespace},
			},
			ledger.Plan{Resolution: 5 * time.Minute, Windows: true, ByNode: true},
		},
		"sites of a node": {
			ledger.Query{
				From: begin, To: begin.Add(time.Hour), Nodes: []string{"n"}, GroupBy: []ledger.Dimension{ledger.BySite},
			},
			ledger.Plan{Resolution: time.Hour, Nodes: true, ByNode: true},
		},
	} {
		if c.want.From.IsZero() {
			c.want.From = c.q.From
		}
		if c.want.To.IsZero() {
			c.want.To = c.q.To
		}
		if got, err := c.q.Plan(); err != nil || got != c.want {
			t.Errorf("%s: Plan() = %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, q := range map[string]ledger.Query{
		"no time":   {From: begin, To: begin},
		"backwards": {From: begin, To: begin.Add(-time.Hour)},
		"year 0":    {To: begin},
		"unknown":   {From: begin, To: hour, GroupBy: []ledger.Dimension{"colour"}},
		"twice":     {From: begin, To: hour, GroupBy: []ledger.Dimension{ledger.ByDay, ledger.ByDay}},
		"limit":     {From: begin, To: hour, Limit: -1},
	} {
		if _, err := q.Plan(); !errors.Is(err, ledger.ErrQuery) {
			t.Errorf("%s: expected an invalid query, got error %v", name, err)
		}
	}
}
