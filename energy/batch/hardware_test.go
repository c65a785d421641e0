package batch_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/energy/batch"
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
	// A later agent may tell more.
	if _, err := batch.DecodeHardware(strings.Replace(value, "{", `{"colour":"red",`, 1)); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(h *batch.Hardware){
		"a line break":    func(h *batch.Hardware) { h.CPU = "a\nb" },
		"letters":         func(h *batch.Hardware) { h.Vendor = "ü" },
		"a long name":     func(h *batch.Hardware) { h.Product = strings.Repeat("p", 129) },
		"less than none":  func(h *batch.Hardware) { h.Threads = -1 },
		"many sockets":    func(h *batch.Hardware) { h.Sockets = 1 << 17 },
		"much memory":     func(h *batch.Hardware) { h.Memory = 1 << 51 },
		"a name of a GPU": func(h *batch.Hardware) { h.GPUs["\x7f"] = 1 },
		"many models": func(h *batch.Hardware) {
			for i := range 17 {
				h.GPUs[strings.Repeat("g", i+1)] = 1
			}
		},
	} {
		h := server()
		h.GPUs = maps.Clone(h.GPUs)
		spoil(h)
		if value := batch.EncodeHardware(h); value != "" {
			t.Errorf("%s: it is sent as %s", what, value)
		}
	}
	for _, bad := range []string{"", "[]", `{"cpu":7}`, `{"cpu":"a\nb"}`, `{"threads":-1}`, strings.Repeat(" ", 5000) + "{}"} {
		if h, err := batch.DecodeHardware(bad); err == nil {
			t.Errorf("%.20q is %+v", bad, h)
		}
	}
}

func FuzzDecodeHardware(f *testing.F) {
	f.Add(`{"cpu":"AMD EPYC 7763","sockets":2,"gpus":{"NVIDIA T4":1},"virtual":true}`)
	f.Fuzz(func(t *testing.T, value string) {
		h, err := batch.DecodeHardware(value)
		if err != nil {
			return
		}
		again := batch.EncodeHardware(h)
		if again == "" { // what JSON escapes gets longer
			return
		}
		if same, err := batch.DecodeHardware(again); err != nil || !cmp.Equal(same, h, cmp.Comparer(
			func(a, b map[string]int) bool { return maps.Equal(a, b) })) {
			t.Errorf("%+v became %+v, %v", h, same, err)
		}
	})
}
