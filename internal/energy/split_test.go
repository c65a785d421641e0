package energy_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		total   energy.Microjoules
		weights []uint64
		want    []energy.Microjoules // nil if the total cannot be split
	}{
		{10, []uint64{1, 1, 1}, []energy.Microjoules{4, 3, 3}},
		{11, []uint64{1, 1, 1}, []energy.Microjoules{4, 4, 3}},
		{1, []uint64{1, 1, 2}, []energy.Microjoules{0, 0, 1}},
		{100, []uint64{0, 5, 0}, []energy.Microjoules{0, 100, 0}},
		{0, []uint64{3, 5}, []energy.Microjoules{0, 0}},
		{7, []uint64{0, 0}, nil},
		{7, nil, nil},
		{-1, []uint64{1}, nil},
		{
			math.MaxInt64,
			[]uint64{math.MaxUint64, math.MaxUint64},
			[]energy.Microjoules{math.MaxInt64/2 + 1, math.MaxInt64 / 2},
		},
	} {
		var s energy.Split
		got := make([]energy.Microjoules, len(c.weights))
		if ok := s.Parts(c.total, c.weights, got); ok != (c.want != nil) || (ok && !slices.Equal(got, c.want)) {
			t.Errorf("Parts(%d, %v) = %v, %v, want %v", c.total, c.weights, got, ok, c.want)
		}
	}
}

// bigSplit implements the largest remainder method with sorting and integers of arbitrary size.
func bigSplit(total energy.Microjoules, weights []uint64) []energy.Microjoules {
	sum := new(big.Int)
	for _, w := range weights {
		sum.Add(sum, new(big.Int).SetUint64(w))
	}
	parts, rests, order := make([]energy.Microjoules, len(weights)), make([]*big.Int, len(weights)),
		make([]int, len(weights))
	left := int64(total)
	for i, w := range weights {
		q, r := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(int64(total)), new(big.Int).SetUint64(w)), sum,
			new(big.Int))
		parts[i], rests[i], order[i] = energy.Microjoules(q.Int64()), r, i
		left -= q.Int64()
	}
	slices.SortStableFunc(order, func(a, b int) int { return rests[b].Cmp(rests[a]) })
	for i := range left {
		parts[order[i]]++
	}
	return parts
}

func TestSplitAgainstOracle(t *testing.T) {
	var s energy.Split // reuses memory of previous splits
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64Range(0, math.MaxUint64>>12)), 1,
			300).Draw(t, "weights")
		total := energy.Microjoules(rapid.Int64Range(0, math.MaxInt64).Draw(t, "total"))
		checkSplit(t, &s, total, weights)
	})
	rng := rand.New(rand.NewPCG(7, 8))
	rounds := 400
	if long {
		rounds = 200_000
	}
	for range rounds {
		weights := make([]uint64, 1+rng.IntN(400))
		shift, values := rng.UintN(64), 1+rng.Uint64N(5)
		for i := range weights {
			if weights[i] = rng.Uint64() >> max(shift, 10); rng.UintN(2) == 0 {
				weights[i] = rng.Uint64N(values)
			}
		}
		checkSplit(t, &s, energy.Microjoules(rng.Int64()>>rng.UintN(63)), weights)
	}
}

func checkSplit(t interface {
	Fatalf(string, ...any)
}, s *energy.Split, total energy.Microjoules, weights []uint64,
) {
	got := make([]energy.Microjoules, len(weights))
	if !s.Parts(total, weights, got) {
		if slices.Max(weights) > 0 {
			t.Fatalf("Parts(%d, %v) = false, want true", total, weights)
		}
		return
	}
	if want := bigSplit(total, weights); !slices.Equal(got, want) {
		t.Fatalf("Parts(%d, %v) = %v, want %v", total, weights, got, want)
	}
}

func TestSplitOfOrderedWeights(t *testing.T) {
	var s energy.Split
	for _, shape := range []func(i int) uint64{
		func(i int) uint64 { return uint64(i) }, func(i int) uint64 { return uint64(5000 - i) }, func(i int) uint64 {
			return uint64(i ^ 0x555)
		},
		func(int) uint64 { return 3 }, func(i int) uint64 { return uint64(min(i, 5000-i)) },
	} {
		weights := make([]uint64, 5000)
		for i := range weights {
			weights[i] = shape(i)
		}
		checkSplit(t, &s, 123_456_789, weights)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(int64(100), []byte{1, 2, 3})
	f.Add(int64(math.MaxInt64), []byte{255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, total int64, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		weights := make([]uint64, len(data))
		for i, b := range data {
			weights[i] = uint64(b&15) << (b >> 4 * 3)
		}
		if total < 0 || len(weights) == 0 || len(weights) > 1<<14 {
			t.Skip()
		}
		var s energy.Split
		checkSplit(t, &s, energy.Microjoules(total), weights)
	})
}
