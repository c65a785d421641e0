package intake

import (
	"fmt"
	"math"
	"testing"
	"unique"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

func TestAck(t *testing.T) {
	known := &entry{containers: []container{containerOf("c", "main"), containerOf("d", "ü")}}
	for i := range known.containers {
		known.containers[i].name = unique.Make(known.containers[i].name.Value())
	}
	web := ledger.Consumer{Pod: "web", Account: ledger.Account{Namespace: "shop"}}
	for name, tc := range map[string]struct {
		shares []string
		want   map[string]batch.Names
	}{
		"no names": {shares: []string{"cgroup/x"}},
		"a pod":    {[]string{"pod/u"}, map[string]batch.Names{"u": {Namespace: "shop", Pod: "web"}}},
		"containers": {
			[]string{"cgroup/x", "pod/u/c", "pod/u/d", "pod/u/other", `pod/v"\é<&>`, `pod/v"\é<&>/d`},
			map[string]batch.Names{
				"u":       {Namespace: "shop", Pod: "web", Containers: map[string]string{"c": "main", "d": "ü"}},
				`v"\é<&>`: {Namespace: "shop", Pod: "web", Containers: map[string]string{"d": "ü"}},
			},
		},
	} {
		b := &ledger.Booking{Batch: &batch.Batch{}}
		var owners []*owner
		for _, id := range tc.shares {
			o := &owner{}
			if _, _, isPod := energy.PodOf(id); isPod {
				o = &owner{Consumer: web, pod: known}
			}
			b.Batch.Shares = append(b.Batch.Shares, energy.Share{ID: id})
			b.Consumers, owners = append(b.Consumers, &o.Consumer), append(owners, o)
		}
		body := encodeAck("E", math.MaxUint64, encodeNames(b, owners))
		got, err := batch.DecodeAck(body)
		if err != nil {
			t.Fatalf("%s: %.200s: %v", name, body, err)
		}
		for uid, n := range got.Names { // an empty map is as good as none
			if len(n.Containers) == 0 {
				n.Containers = nil
				got.Names[uid] = n
			}
		}
		if len(got.Names) == 0 {
			got.Names = nil
		}
		if diff := cmp.Diff(&batch.Ack{Epoch: "E", Acked: math.MaxUint64, Names: tc.want}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	// All names of a pod are omitted if some of them do not fit.
	for _, pods := range []int{1, 2, 30_000} {
		b := &ledger.Booking{Batch: &batch.Batch{}}
		var owners []*owner
		for i := range 30_000 {
			o := &owner{Consumer: web, pod: known}
			b.Batch.Shares = append(b.Batch.Shares, energy.Share{ID: fmt.Sprintf("pod/%036d/d", i*pods/30_000)})
			b.Consumers, owners = append(b.Consumers, &o.Consumer), append(owners, o)
		}
		body := encodeAck("E", 1, encodeNames(b, owners))
		got, err := batch.DecodeAck(body)
		if err != nil {
			t.Fatal(err)
		}
		if pods == 30_000 && len(body) < batch.MaxAckBytes-5000 {
			t.Errorf("%d pods: %d bytes with %d names", pods, len(body), len(got.Names))
		}
	}
}
