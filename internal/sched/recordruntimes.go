package sched

import (
	"encoding/binary"
	"math"
	"time"
)

// runtimes writes a distribution once, however many jobs share it.
func (w *writer) runtimes(r *Runtimes) int {
	return once(w, r, "runtimes", &w.out.Runtimes, func() writtenRuntimes {
		n := len(r.survival)
		for n > 2 && r.survival[n-2] == 0 { // the zero after the last one that is none ends it
			n--
		}
		out := writtenRuntimes{Step: r.step, Survival: make([]byte, 0, 8*n)}
		for _, v := range r.survival[:n] {
			out.Survival = binary.LittleEndian.AppendUint64(out.Survival, math.Float64bits(v))
		}
		return out
	})
}

// lives reads the distributions that jobs refer to.
func (r *reader) lives() []*Runtimes {
	r.want(len(r.in.Runtimes) <= maxQueue, "it has %d distributions of run times", len(r.in.Runtimes))
	if r.err != nil {
		return nil
	}
	all := make([]*Runtimes, len(r.in.Runtimes))
	for i := range r.in.Runtimes {
		all[i] = r.runtimes(&r.in.Runtimes[i])
	}
	return all
}

func (r *reader) runtimes(in *writtenRuntimes) *Runtimes {
	n := len(in.Survival) / 8
	r.want(len(in.Survival)%8 == 0 && n <= maxValues, "run times have %d bytes", len(in.Survival))
	r.want(in.Step > 0 && in.Step <= maxDuration/time.Duration(max(n, 1)), "run times have %d steps of %v", n, in.Step)
	if r.err != nil {
		return nil
	}
	survival := make([]float64, n)
	for i := range survival {
		survival[i] = math.Float64frombits(binary.LittleEndian.Uint64(in.Survival[8*i:]))
	}
	runtimes, err := NewRuntimes(in.Step, survival)
	r.want(err == nil, "%w", err)
	return runtimes
}
