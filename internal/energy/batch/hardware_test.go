package batch_test

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestHardware(t *testing.T) {
	server := func() *batch.Hardware {
		return &batch.Hardware{
			CPU: "AMD EPYC 7763 64-Core Processor", Sockets: 2, Cores: 128, Threads: 256, Memory: 1 << 40,
			Vendor: "Dell Inc.", Product: "PowerEdge R7525", GPUs: map[string]int{"NVIDIA A100-SXM4-80GB": 4},
		}
	}
	value := batch.EncodeHardware(server())
	got, err := batch.DecodeHardware(value)
	if diff := cmp.Diff(server(), got); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	// A later agent may report additional fields.
	if _, err := batch.DecodeHardware(strings.Replace(value, "{", `{"colour":"red",`, 1)); err != nil {
		t.Error(err)
	}
	// A header is limited in length and cannot contain line breaks.
	long := server()
	long.Product = strings.Repeat("p", 5000)
	if value := batch.EncodeHardware(long); value != "" {
		t.Errorf("len(EncodeHardware()) = %d, want 0", len(value))
	}
	if value := batch.EncodeHardware(&batch.Hardware{CPU: "a\nb\x00\xff"}); strings.ContainsAny(value, "\n\x00") ||
		!utf8.ValidString(value) {
		t.Errorf("EncodeHardware() = %q, want a single line of valid UTF-8", value)
	}
	for _, bad := range []string{"", "[]", `{"cpu":7}`, `{"threads":1e30}`, strings.Repeat(" ", 5000) + "{}"} {
		if h, err := batch.DecodeHardware(bad); err == nil {
			t.Errorf("%.20q is %+v", bad, h)
		}
	}
}

func FuzzDecodeHardware(f *testing.F) {
	f.Add(`{"cpu":"AMD EPYC 7763","sockets":2,"gpus":{"NVIDIA T4":1},"virtual":true}`)
	f.Fuzz(func(t *testing.T, value string) {
		defer memtest.Limit(t, 100*len(value))()
		h, err := batch.DecodeHardware(value)
		if err != nil {
			return
		}
		again := batch.EncodeHardware(h)
		if again == "" { // escaping may make the JSON longer
			return
		}
		if same, err := batch.DecodeHardware(again); err != nil || !cmp.Equal(same, h, cmp.Comparer(
			func(a, b map[string]int) bool { return maps.Equal(a, b) })) {
			t.Errorf("decoding %+v again returned %+v, error %v", h, same, err)
		}
	})
}
