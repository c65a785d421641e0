package status

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestNodeLabels verifies that nodes are labeled once, that existing labels are not overwritten until they are
// removed, that failed writes are retried, and that other metadata is not changed.
func TestNodeLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := kit.Node("n1", "128")
		own.Labels = map[string]string{"shop": "x", v1alpha1.LabelSite: "north"}
		w := kit.NewWorld(t, own, kit.Node("n2", "4"))
		patches, fail := 0, error(nil)
		api := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{Patch: func(ctx context.Context,
			c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption,
		) error {
			if patches++; fail != nil {
				return fail
			}
			return c.Patch(ctx, o, patch, opts...)
		}})
		leads := true
		var logged strings.Builder
		l := &NodeLabels{
			Client: api, View: func() *kube.View { return &kube.View{} }, Leads: func() bool { return leads },
			Log: slog.New(slog.NewTextHandler(&logged, nil)), Node: func(name string) *v1.Node {
				n := &v1.Node{}
				if w.Get(t.Context(), client.ObjectKey{Name: name}, n) != nil {
					return nil
				}
				return n
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		notify := func(node string, h *batch.Hardware, writes int) *v1.Node {
			t.Helper()
			before := patches
			l.Reported(node, h)
			bubble.Advance(labelLook + time.Second)
			if patches-before != writes {
				t.Errorf("%d patches, want %d", patches-before, writes)
			}
			return l.Node("n1")
		}
		epyc := &batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor", Sockets: 1, Cores: 64, Threads: 128}
		want := map[string]string{
			"shop": "x", v1alpha1.LabelSite: "north", v1alpha1.LabelCPUModel: "AMD-EPYC-7763-64-Core-Processor",
			v1alpha1.LabelCPUSockets: "1", v1alpha1.LabelCPUCores: "64",
		}
		const guess = "35 W idle, 186 W at full load, estimated by model: half of such estimates were within 12 % and 13 %"
		got := notify("n1", epyc, 1)
		if diff := cmp.Diff(want, got.Labels); diff != "" || got.Annotations[v1alpha1.AnnotationPowerGuess] != guess {
			t.Error(diff, got.Annotations)
		}
		notify("n1", epyc, 0) // agents repeat the report every hour
		notify("gone", epyc, 0)
		other := &batch.Hardware{CPU: "Intel(R) Xeon(R) Platinum 8480+", Sockets: 64, GPUs: map[string]int{"NVIDIA T4": 1}}
		leads = false
		notify("n1", other, 0)
		leads, fail = true, errors.New("refused")
		notify("n1", other, 1)
		fail = nil
		got = notify("n2", &batch.Hardware{Vendor: "Dell Inc."}, 2) // the failed write of n1 is retried
		want[v1alpha1.LabelGPUModel], want[v1alpha1.LabelGPUCount] = "NVIDIA-T4", "1"
		if diff := cmp.Diff(want, got.Labels); diff != "" || !strings.Contains(logged.String(), "remove the labels") {
			t.Error(diff, logged.String())
		}
		if l.Node("n2").Labels[v1alpha1.LabelMachine] != "Dell-Inc" || len(l.Node("n2").Annotations) > 0 {
			t.Errorf("%+v", l.Node("n2").ObjectMeta)
		}
		delete(got.Labels, v1alpha1.LabelCPUModel)
		if err := w.Update(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		if got = notify("n1", other, 1); got.Labels[v1alpha1.LabelCPUModel] != "Intel-R-Xeon-R-Platinum-8480-plus" {
			t.Error(got.Labels)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
