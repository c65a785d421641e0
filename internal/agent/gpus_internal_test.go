package agent

import (
	"testing"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// TestPodNames verifies that pod and container names are resolved to consumer IDs.
func TestPodNames(t *testing.T) {
	var p gpus
	p.names.Store(&map[string]batch.Names{
		"u1": {Namespace: "ml", Pod: "job", Containers: map[string]string{"c1": "train"}},
		"u3": {Namespace: "ml", Pod: "set-0", Containers: map[string]string{"c3": "train"}},
		"u4": {Namespace: "ml", Pod: "set-0", Containers: map[string]string{"c4": "train"}},
	})
	for _, c := range []struct {
		use  gpu.Use
		want string
	}{
		{gpu.Use{Namespace: "ml", Pod: "job", Container: "train"}, "pod/u1/c1"},
		{gpu.Use{Namespace: "ml", Pod: "job", Container: "new"}, "pod/u1"},
		{gpu.Use{Namespace: "ml", Pod: "other", PodUID: "u2"}, "pod/u2"},
		{gpu.Use{Namespace: "ml", Pod: "set-0", PodUID: "u4", Container: "train"}, "pod/u4/c4"}, // recreated pod
		{gpu.Use{Namespace: "ml", Pod: "other", PodUID: "u/2/3"}, ""},
		{gpu.Use{Namespace: "ml", Pod: "other"}, ""},
	} {
		if have := p.consumerOf(&c.use); have != c.want {
			t.Errorf("consumerOf(%+v) = %q, want %q", c.use, have, c.want)
		}
	}
}
