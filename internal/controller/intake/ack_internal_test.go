package intake

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

func TestAck(t *testing.T) {
	for _, names := range [][]named{
		nil,
		{{uid: "u", namespace: "shop", pod: "web"}},
		{
			{uid: "u", namespace: "shop", pod: "web", containers: []namedContainer{{"c", "main"}, {"d", "sidecar"}}},
			{uid: `v"\é<&>`, namespace: "shop", pod: "x", containers: []namedContainer{{"c", "ü"}}},
		},
	} {
		want := &batch.Ack{Epoch: "E", Acked: math.MaxUint64}
		for _, n := range names {
			if want.Names == nil {
				want.Names = map[string]batch.Names{}
			}
			all := batch.Names{Namespace: n.namespace, Pod: n.pod}
			for _, c := range n.containers {
				if all.Containers == nil {
					all.Containers = map[string]string{}
				}
				all.Containers[c.id] = c.name
			}
			want.Names[n.uid] = all
		}
		body := appendAck(nil, want.Epoch, want.Acked, names)
		got, err := batch.DecodeAck(body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		plain, _ := sinktest.EncodeAck(want)
		if len(names) < 2 && string(plain) != string(body) {
			t.Errorf("appendAck() = %s, want %s", body, plain)
		}
	}
	var many []named
	for range 30_000 {
		many = append(many, named{uid: strings.Repeat("u", 36), namespace: strings.Repeat("\x7f", 10), pod: "p"})
	}
	if body := appendAck(nil, "E", 1, many); len(body) > batch.MaxAckBytes || len(body) < batch.MaxAckBytes-200 ||
		!json.Valid(body) {
		t.Errorf("appendAck() returned %d bytes, want at most %d of valid JSON", len(body), batch.MaxAckBytes)
	}
}
