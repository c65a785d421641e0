package batch_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// hundred returns a batch as sent by the agent of a node with a hundred containers.
func hundred() *batch.Batch {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(bytes int) string {
		b := make([]byte, bytes)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return hex.EncodeToString(b)
	}
	b := valid()
	b.Shares = nil
	b.Measured = b.Idle + b.Platform + b.Unknown
	for range 100 {
		pod := fmt.Sprintf("%s-%s-%s-%s-%s", text(4), text(2), text(2), text(2), text(6))
		s := energy.Share{
			ID: energy.ContainerID(pod, text(32)), Dynamic: 12_345_678, Idle: 2_345_678,
			CPU: 1_234_567_890 * time.Nanosecond,
		}
		b.Measured += s.Dynamic + s.Idle
		b.Shares = append(b.Shares, s)
	}
	slices.SortFunc(b.Shares, func(a, b energy.Share) int { return strings.Compare(a.ID, b.ID) })
	return b
}

func BenchmarkDecode(b *testing.B) {
	data, err := batch.Encode(hundred())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := batch.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}
