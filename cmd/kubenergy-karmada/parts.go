package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/karmada"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/hold"
	"github.com/kubenergy/kubenergy/scheduler/record"
)

// Of the client of the hold loop, which waits for nothing at a deadline.
const (
	holdQPS   = 1000
	holdBurst = 2000
)

// newParts returns what runs: knowledge, the driver of clusters, the hold loop, and the recorder.
func newParts(f *karmada.Flags, api *rest.Config, log *slog.Logger) ([]func(context.Context) error, error) {
	objects, errObjects := kube.NewObjects(api, log)
	o, errFlags := f.Options(api, log)
	holding := rest.AddUserAgent(rest.CopyConfig(api), "kubenergy-hold")
	holding.QPS, holding.Burst = holdQPS, holdBurst
	client, errClient := kubernetes.NewForConfig(holding)
	if err := errors.Join(errObjects, errFlags, errClient); err != nil {
		return nil, err
	}
	holds := hold.Config{
		Client: client, View: objects.View, Namespace: v1alpha1.SystemNamespace,
		Stuck: func() { // the kubelet starts it anew
			log.Error("the hold loop is stuck: ending")
			os.Exit(1)
		},
	}
	parts := []func(context.Context) error{objects.Run}
	if f.Records.URL != "" {
		recorder, err := record.New(f.Records, log)
		if err != nil {
			return nil, err
		}
		parts = append(parts, recorder.Run)
		holds.Record = recorder.Tell
		o.Record = func(r ledger.Record, on *sched.Snapshot) { recorder.Tell(&record.Entry{Record: r, Question: on}) }
	}
	o.View = objects.View // what it knows at first is nothing: Karmada decides alone
	var loop *hold.Loop   // asks the driver, which tells it
	o.Started = func(job types.UID) { loop.Started(job) }
	driver, err := karmada.New(o)
	if err != nil {
		return nil, err
	}
	holds.Sites = driver.Sites
	loop = hold.New(holds)
	return append(parts, loop.Run, driver.Run), nil
}
