package karmada

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// request returns a request of karmada-scheduler for a cluster and the resource request of a replica.
func request(cluster string, needs map[string]string) []byte {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	var requirements []byte
	for name, quantity := range needs {
		entry := append(field(1, []byte(name)), field(2, field(1, []byte(quantity)))...)
		requirements = append(requirements, field(5, entry)...)
	}
	return append(field(1, []byte(cluster)), field(2, requirements)...)
}

func TestReadRequest(t *testing.T) {
	cluster, needs, err := readRequest(request("north", map[string]string{"cpu": "1500m", "memory": "2Gi"}))
	if err != nil || cluster != "north" {
		t.Fatalf("%s %+v: %v", cluster, needs, err)
	}
	if got := policy.ResourcesOf(needs); got.MilliCPU != 1500 || got.Memory != 2<<30 {
		t.Errorf("%+v", got)
	}
	for _, garbage := range [][]byte{
		{0xff},
		{0x12, 0x7f},
		request("north", map[string]string{"cpu": "much"}),
		request("north", map[string]string{"cpu": "-1"}),
		request("north", map[string]string{"cpu": "1e-999999999"}), // takes the parser too long
	} {
		if cluster, needs, err := readRequest(garbage); err == nil {
			t.Errorf("readRequest(%q) = %s, %+v, want an error", garbage, cluster, needs)
		}
	}
}

// FuzzRequest verifies that requests with negative resources are rejected, because they would fit everywhere.
func FuzzRequest(f *testing.F) {
	f.Add(request("north", map[string]string{"cpu": "2"}))
	f.Add(request("", map[string]string{"memory": "9999999999Ei", "nvidia.com/gpu": "1"}))
	f.Add(request("south", map[string]string{"cpu": "-1"}))
	f.Add(request("south", map[string]string{"cpu": "1e9"}))
	f.Add([]byte{0x08, 0x01, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		_, needs, err := readRequest(data)
		if err != nil {
			return
		}
		if got := policy.ResourcesOf(needs); got.MilliCPU < 0 || got.Memory < 0 || got.GPU < 0 {
			t.Errorf("got negative resources %+v", got)
		}
	})
}
