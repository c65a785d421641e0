package controller

import (
	"context"
	"testing"
	"testing/synctest"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// A loop that panics is restarted until its context is done. Panics that controller-runtime recovers are counted.
func TestPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		loop := (&app{log: controllertest.Silent}).kept("loop", func(ctx context.Context) error {
			if runs++; runs < 3 {
				panic("planted")
			}
			cancel()
			<-ctx.Done()
			return nil
		})
		if err := loop.Start(ctx); err != nil || runs != 3 || panics.Note("loop") != 3 {
			t.Errorf("%d runs, error %v", runs, err)
		}
	})
	countPanics()
	countPanics()
	utilruntime.PanicHandlers[len(utilruntime.PanicHandlers)-1](t.Context(), "planted")
	if again := panics.Note("reconcile"); again != 2 {
		t.Errorf("counted %d panics of reconcilers", again-1)
	}
}
