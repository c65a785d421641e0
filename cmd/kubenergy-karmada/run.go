package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// run starts the object cache, the cluster driver, the hold loop and the recorder. It returns when ctx is cancelled
// or one of them fails.
func run(ctx context.Context, f *karmada.Flags, api *rest.Config, log *slog.Logger) error {
	objects, errObjects := kube.NewObjects(api, log)
	o, errFlags := f.Options(api, log)
	client, errClient := hold.NewClient(api)
	recorder, errRecords := newRecorder(f, log)
	if err := errors.Join(errObjects, errFlags, errClient, errRecords); err != nil {
		return err
	}
	var loop *hold.Loop   // the driver and the hold loop refer to each other
	o.View = objects.View // initially empty, in which case Karmada selects clusters itself
	o.Started = func(job types.UID, room bool) { loop.Started(job, room) }
	o.Record = func(r ledger.Record, on *sched.Snapshot) { recorder.Record(&record.Entry{Record: r, Question: on}) }
	driver, err := karmada.New(o)
	if err != nil {
		return err
	}
	loop = hold.New(hold.Config{
		Client: client, View: objects.View, Namespace: v1alpha1.SystemNamespace, Sites: driver.Sites,
		Record: recorder.Record,
		Stuck: func() { // the kubelet restarts the container
			log.Error("Hold loop is stuck, exiting")
			os.Exit(1)
		},
	})
	go func() { // logged only once because all components retry forever
		if _, err := client.Discovery().ServerVersion(); err != nil {
			log.Error("Failed to connect to the Karmada API server, retrying; check --kubeconfig", "server", api.Host,
				"error", err)
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{objects.Run, recorder.Run, loop.Run, driver.Run} {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// newRecorder returns a recorder that sends decisions to the controller of the federation, or nil if no URL is
// configured.
func newRecorder(f *karmada.Flags, log *slog.Logger) (*record.Recorder, error) {
	if f.Records.URL == "" {
		return nil, nil
	}
	recorder, err := record.New(f.Records, log)
	if err != nil {
		return nil, fmt.Errorf("--kubenergy-record-url: %w", err)
	}
	return recorder, nil
}
