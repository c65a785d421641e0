// Package agent implements the agent that meters one node. Once per interval (1 s by default), it reads the CPU
// time of all control groups and the energy counters, and attributes the energy to consumers. The totals are served
// as metrics, pushed to the controller in batches, and published to virtual machines.
//
// The loop runs in one goroutine. Slow or external operations, such as HTTP clients, deliveries and meters read
// over HTTP, run in other goroutines and never block it.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/exposition"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Version returns the version of the main module, which contains the commit unless the commit is tagged.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// Run meters until ctx is done. It then tries once more to deliver pending batches; batches that are still
// unacknowledged remain in the state directory.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	a, err := open(o, log)
	if err != nil {
		return err
	}
	defer a.close()
	// One thread meters and one serves. On machines with many CPUs, more threads would make garbage collection more
	// expensive than metering.
	if os.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(min(2, runtime.NumCPU())))
	}
	group, ctx := errgroup.WithContext(ctx)
	// The pusher outlives the loop so that it also delivers the last tick.
	pushing, stopPushing := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stopPushing()
		a.loop(ctx)
		return nil
	})
	if a.pusher != nil {
		group.Go(func() error {
			a.pusher.Run(pushing)
			return nil
		})
	}
	group.Go(func() error {
		a.watchTemperatures(ctx)
		return nil
	})
	if o.Listen != "0" {
		group.Go(func() error { return a.serve(ctx) })
	}
	return group.Wait()
}

// agent is used by the goroutine of its loop only. Parts that other goroutines use have their own locks.
type agent struct {
	options Options
	log     *slog.Logger

	host        *host.Host
	meters      []meter.Meter
	root        *meter.Root
	attributing energy.AttributorOptions
	attributor  *energy.Attributor
	queue       *delivery.Queue  // nil if batches are neither pushed nor persisted
	pusher      *delivery.Pusher // nil if batches are not pushed
	page        *exposition.Exporter
	publisher   *guests.Publisher // nil if the node is not a hypervisor
	gpus        gpus
	hottest     atomic.Pointer[energy.Celsius] // of CPUs and GPUs; nil if unknown or already sent

	sweep       host.Sweep
	readings    []energy.Reading
	observation energy.Observation
	attribution energy.Attribution
	state       []byte
	section     []byte       // of the state
	lastTick    atomic.Int64 // time since boot, in nanoseconds
	status      exposition.Status

	sweepTrouble, publishTrouble logThrottle
	meterLogs                    []logThrottle
}

func open(o Options, log *slog.Logger) (_ *agent, err error) {
	o = o.complete()
	a := &agent{options: o, log: log}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.host, err = host.Open(o.Host, log); err != nil {
		return nil, fmt.Errorf("opening the host: %w", err)
	}
	if a.meters, err = meter.Open(o.Meters, log); err != nil {
		return nil, fmt.Errorf("opening meters: %w", err)
	}
	a.root = meter.NewRoot(&o.Meters, a.meters)
	prior, err := a.prior()
	if err != nil {
		return nil, err
	}
	// Wait for a root meter that does not advance. A meter that is scraped rarely advances only as often.
	a.attributing = energy.AttributorOptions{
		Idle: o.Idle, Prior: prior, Patience: max(time.Minute, 3*o.Interval, 3*o.Meters.ScrapeInterval),
	}
	a.attributor = energy.NewAttributor(a.attributing)
	a.openGPUs()
	if err := a.openDelivery(); err != nil {
		return nil, err
	}
	if o.Host.VMs {
		if a.publisher, err = guests.Open(o.GuestsDir, o.Node, log); err != nil {
			return nil, err
		}
	}
	a.page = exposition.New(exposition.Options{Node: o.Node, Version: Version(), MaxConsumers: o.MaxConsumers})
	a.prepare()
	return a, nil
}

// prior returns the idle power from the node's power profile, used until it has been observed. It returns nil if
// the profile does not describe the root domain.
func (a *agent) prior() (*energy.Profile, error) {
	domains, parts := a.root.Domains()
	if len(domains) == 0 || len(parts) > 0 { // a profile describes the whole machine including its platform
		return nil, nil
	}
	switch domains[0].Kind {
	case energy.Model:
		if model, ok := meter.Of[*meter.Model](a.meters); ok {
			return model.Profile(a.host.CPUs()), nil
		}
	case energy.Wall:
		if a.options.Meters.Profile != "" {
			return meter.ReadProfile(a.options.Meters.Profile)
		}
	}
	return nil, nil
}

// openDelivery opens the queue, restores the state of the previous process of this boot, if any, and creates the
// pusher.
func (a *agent) openDelivery() error {
	o := &a.options
	if o.StateDir == "" && o.Push.URL == "" {
		return nil
	}
	boot, err := host.BootID()
	if err != nil {
		return fmt.Errorf("identifying this boot: %w", err)
	}
	if a.queue, err = delivery.OpenQueue(delivery.QueueOptions{Dir: o.StateDir, Node: o.Node, Boot: boot},
		a.log); err != nil {
		return fmt.Errorf("opening the state directory: %w", err)
	}
	if state := a.queue.State(); state != nil {
		if err := a.restore(state); err != nil {
			a.log.Warn("Ignored the invalid state of the previous process", "err", err)
			a.attributor = energy.NewAttributor(a.attributing) // discard partially restored state
		}
	}
	if o.Push.URL == "" {
		return nil
	}
	push := o.Push
	push.Interval = o.BatchInterval
	push.OnNames = func(names map[string]batch.Names) {
		a.page.SetNames(names)
		a.gpus.names.Store(&names)
	}
	push.Hardware = func() *batch.Hardware { return host.Hardware(o.Host.Proc, "/sys") }
	push.Findings = func() []string { return a.page.Findings() }
	push.Temperature = func() *energy.Celsius { return a.hottest.Swap(nil) }
	a.pusher, err = delivery.NewPusher(push, a.queue, a.log)
	return err
}

// prepare initializes the status and logs the configuration. It must be called after all parts have been opened.
func (a *agent) prepare() {
	a.meterLogs = make([]logThrottle, len(a.meters))
	for _, m := range a.meters {
		a.status.Meters = append(a.status.Meters, exposition.MeterStatus{Name: m.Name(), Readable: true})
	}
	a.status.Idle = a.options.Idle.String()
	domains, parts := a.root.Domains()
	a.log.Info("Started metering", "node", a.options.Node, "source", a.root.Source(), "root", domains, "parts", parts,
		"interval", a.options.Interval.String(),
		"idle", a.options.Idle, "push", a.options.Push.URL, "version", Version())
	if a.options.StateDir == "" && a.pusher != nil {
		a.log.Warn("Unacknowledged batches will be lost on exit, because --state-dir is not set")
	}
}

func (a *agent) close() {
	meter.Close(a.meters)
	if a.publisher != nil {
		a.publisher.Close()
	}
	if a.queue != nil {
		a.queue.Close()
	}
	if a.host != nil {
		if err := a.host.Close(); err != nil {
			a.log.Warn("Failed to close", "err", err)
		}
	}
}

// watchTemperatures reads the temperature sensors until ctx is done. It runs outside of the loop because some
// sensors, such as those of disks, respond slowly.
func (a *agent) watchTemperatures(ctx context.Context) {
	sensors, ok := meter.Of[*meter.Hwmon](a.meters)
	for tick := time.NewTicker(temperaturePeriod); ; {
		var all []meter.Temperature
		if ok {
			all = sensors.Temperatures(all)
		}
		if a.gpus.meter != nil {
			all = a.gpus.meter.Temperatures(host.Now(), all)
		}
		a.page.SetTemperatures(all)
		a.hottest.Store(meter.Hottest(all))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const temperaturePeriod = 15 * time.Second

// serve serves metrics and health checks until ctx is done.
func (a *agent) serve(ctx context.Context) error {
	routes := exposition.Routes{
		Metrics: a.page, Healthy: a.healthy, TokenFile: a.options.MetricsTokenFile, Log: a.log,
	}
	if a.pusher != nil {
		routes.Forward = a.pusher.Push
	}
	return exposition.Serve(ctx, a.options.Listen, a.options.WebConfig, routes.Handler(), a.log)
}
