package mincost_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/mincost"
)

// drawTransport draws a transport with many rows and columns that are alike.
func drawTransport(t *rapid.T) *mincost.Transport {
	shapes, kinds := rapid.IntRange(1, 3).Draw(t, "shapes"), rapid.IntRange(1, 3).Draw(t, "kinds")
	rows := rapid.SliceOfN(rapid.IntRange(0, shapes-1), 0, 6).Draw(t, "rows")
	cols := rapid.SliceOfN(rapid.IntRange(0, kinds-1), 0, 6).Draw(t, "cols")
	span := rapid.SampledFrom([]int64{1, 4, 1000, mincost.MaxCost}).Draw(t, "span")
	cost := rapid.SliceOfN(rapid.Int64Range(-span, span), shapes*kinds, shapes*kinds).Draw(t, "cost")
	missing := rapid.SliceOfN(rapid.IntRange(0, 3), shapes*kinds, shapes*kinds).Draw(t, "missing")
	limit := rapid.SliceOfN(rapid.Int64Range(0, 4), shapes*kinds, shapes*kinds).Draw(t, "limit")
	alone := rapid.SliceOfN(rapid.Int64Range(-span, span), shapes, shapes).Draw(t, "alone")
	limited, priced := rapid.Bool().Draw(t, "limited"), rapid.Bool().Draw(t, "priced")

	transport := &mincost.Transport{}
	for _, shape := range rows {
		transport.Count = append(transport.Count, rapid.Int64Range(0, 4).Draw(t, "count"))
		if priced {
			transport.Alone = append(transport.Alone, alone[shape])
		}
		for _, kind := range cols {
			cell := shape*kinds + kind
			c := cost[cell]
			if missing[cell] == 0 {
				c = mincost.Missing
			}
			transport.Cost = append(transport.Cost, c)
			if limited {
				transport.Limit = append(transport.Limit, limit[cell])
			}
		}
	}
	for range cols {
		transport.Room = append(transport.Room, rapid.Int64Range(0, 5).Draw(t, "room"))
	}
	return transport
}

func penalised(t *mincost.Transport, s *mincost.Shipment) int64 {
	sum := s.Cost
	for row, left := range s.Left {
		if t.Alone != nil {
			sum += left * t.Alone[row]
		}
	}
	return sum
}

// Aggregation loses nothing: the raw solve proves it, and both carry proofs for the transport as it was stated.
func TestAggregationIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		transport := drawTransport(t)
		var solver mincost.TransportSolver
		raw, err := solver.Solve(transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Certify(transport); err != nil {
			t.Fatal(err)
		}
		aggregated, err := mincost.SolveTransport(transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := aggregated.Certify(transport); err != nil {
			t.Fatalf("%v\n%+v\n%+v", err, transport, aggregated)
		}
		if penalised(transport, raw) != penalised(transport, aggregated) || transport.Alone == nil && raw.Placed != aggregated.Placed {
			t.Fatalf("%+v %+v", raw, aggregated)
		}
	})
}
