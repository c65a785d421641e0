package codec

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// runtimes encodes a distribution. Jobs with the same distribution share the encoded form.
func (w *writer) runtimes(r *sched.Runtimes) int {
	return once(w, r, "runtimes", &w.out.Runtimes, func() writtenRuntimes {
		n := len(r.Survival)
		for n > 2 && r.Survival[n-2] == 0 { // a single zero marks the end
			n--
		}
		out := writtenRuntimes{Step: r.Step, Survival: make([]byte, 0, 8*n)}
		for _, v := range r.Survival[:n] {
			out.Survival = binary.LittleEndian.AppendUint64(out.Survival, math.Float64bits(v))
		}
		return out
	})
}

// lives decodes the distributions of run times.
func (r *reader) lives() []*sched.Runtimes {
	r.want(len(r.in.Runtimes) <= maxQueue, "snapshot has %d distributions of run times", len(r.in.Runtimes))
	if r.err != nil {
		return nil
	}
	return sliceutil.Map(sliceutil.Refs(r.in.Runtimes), r.runtimes)
}

func (r *reader) runtimes(in *writtenRuntimes) *sched.Runtimes {
	n := len(in.Survival) / 8
	r.want(len(in.Survival)%8 == 0 && n <= maxValues, "distribution of run times has %d bytes", len(in.Survival))
	r.want(in.Step > 0 && in.Step <= sched.MaxDuration/time.Duration(max(n, 1)),
		"distribution of run times has %d steps of %v", n, in.Step)
	if r.err != nil {
		return nil
	}
	survival := make([]float64, n)
	for i := range survival {
		survival[i] = math.Float64frombits(binary.LittleEndian.Uint64(in.Survival[8*i:]))
	}
	runtimes, err := sched.NewRuntimes(in.Step, survival)
	r.want(err == nil, "%w", err)
	return runtimes
}
