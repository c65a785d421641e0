// Package agent meters one node. Once a second it sweeps over the CPU times of all that runs, reads the energy
// counters, and attributes what was used; the sums are served as metrics, pushed in batches, and published to virtual
// machines.
//
// The loop is one goroutine. What is slow or foreign, a client, the network, a meter behind HTTP, stands beside it and
// never makes it wait.
package agent

import (
	"context"
	"errors"
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

// Version is that of the module, or of the commit it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && info.Main.Version == "(devel)" {
			return s.Value
		}
	}
	return info.Main.Version
}

// Run meters until ctx ends. What is not delivered by then is tried once more, and stays in the state folder.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	a, err := open(o, log)
	if err != nil {
		return err
	}
	defer a.close()
	// One thread meters and one serves; more of them would make collecting garbage on large machines cost more than
	// metering.
	if os.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(min(2, runtime.NumCPU())))
	}
	group, ctx := errgroup.WithContext(ctx)
	// The pusher outlives the loop: what the last tick books is to be delivered as well.
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

// An agent belongs to its loop; the parts that others ask guard themselves.
type agent struct {
	options Options
	log     *slog.Logger

	host        *host.Host
	meters      []meter.Meter
	root        *meter.Root
	attributing energy.AttributorOptions
	attributor  *energy.Attributor
	queue       *delivery.Queue  // nil: nothing is pushed, and nothing survives the process
	pusher      *delivery.Pusher // nil: nothing is pushed
	page        *exposition.Exporter
	publisher   *guests.Publisher // nil: not a hypervisor
	gpus        gpus
	hottest     atomic.Pointer[energy.Celsius] // of CPUs and GPUs; nil: not known, or told already

	sweep       host.Sweep
	readings    []energy.Reading
	observation energy.Observation
	attribution energy.Attribution
	state       []byte
	heartbeat   heartbeat
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
		return nil, fmt.Errorf("finding what runs here: %w", err)
	}
	if a.meters, err = meter.Open(o.Meters, log); err != nil {
		return nil, fmt.Errorf("opening meters: %w", err)
	}
	a.root = meter.NewRoot(a.meters)
	prior, err := a.prior()
	if err != nil {
		return nil, err
	}
	// A root that does not move is waited for. A meter that is asked seldom moves as seldom.
	a.attributing = energy.AttributorOptions{
		Idle: o.Idle, Prior: prior, Patience: max(time.Minute, 3*o.Interval, 3*o.Meters.ScrapeInterval),
	}
	a.attributor = energy.NewAttributor(a.attributing)
	a.openGPUs()
	if err := a.openDelivery(); err != nil {
		return nil, err
	}
	if o.Host.VMs {
		if a.publisher, err = guests.Open(guests.Options{Dir: o.GuestsDir, Host: o.Node}, log); err != nil {
			return nil, err
		}
	}
	a.page = exposition.New(exposition.Options{Node: o.Node, Version: Version(), MaxConsumers: o.MaxConsumers})
	a.prepare()
	return a, nil
}

// prior is what is known of the node's idle power before it was observed: what its profile says, if the root domain
// is the machine that the profile describes.
func (a *agent) prior() (*energy.Profile, error) {
	domains, parts := a.root.Domains()
	if len(domains) == 0 || len(parts) > 0 { // a profile is of a whole machine, without its platform taken off
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

// openDelivery takes up what a former process of this boot left behind, if there is a folder for that.
func (a *agent) openDelivery() error {
	o := &a.options
	if o.StateDir == "" && o.Push.URL == "" {
		return nil
	}
	boot, err := host.BootID()
	if err != nil {
		return fmt.Errorf("naming this boot: %w", err)
	}
	if a.queue, err = delivery.OpenQueue(delivery.QueueOptions{Dir: o.StateDir, Node: o.Node, Boot: boot},
		a.log); err != nil {
		return fmt.Errorf("opening the state folder: %w", err)
	}
	if state := a.queue.State(); state != nil {
		if err := a.restore(state); err != nil {
			a.log.Warn("beginning anew: the state of the former process is of no use", "err", err)
			a.attributor = energy.NewAttributor(a.attributing) // half a state is none
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
	push.Temperature = func() *energy.Celsius { return a.hottest.Swap(nil) }
	a.pusher, err = delivery.NewPusher(push, a.queue, a.log)
	return err
}

// prepare is what follows from the parts, once all are there.
func (a *agent) prepare() {
	a.meterLogs = make([]logThrottle, len(a.meters))
	for _, m := range a.meters {
		a.status.Meters = append(a.status.Meters, exposition.MeterStatus{Name: m.Name(), Readable: true})
	}
	a.status.Idle = a.options.Idle.String()
	domains, parts := a.root.Domains()
	a.log.Info("metering", "node", a.options.Node, "source", a.root.Source(), "root", domains, "parts", parts,
		"interval", a.options.Interval.String(),
		"idle", a.options.Idle, "push", a.options.Push.URL, "version", Version())
	if a.options.StateDir == "" && a.pusher != nil {
		a.log.Warn("without --state-dir, what is not acknowledged is lost with the process")
	}
}

func (a *agent) close() {
	meter.Close(a.meters)
	var errs []error
	if a.publisher != nil {
		errs = append(errs, a.publisher.Close())
	}
	if a.queue != nil {
		errs = append(errs, a.queue.Close())
	}
	if a.host != nil {
		errs = append(errs, a.host.Close())
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Warn("closing", "err", err)
	}
}

// watchTemperatures asks the sensors until ctx ends. Some, as those of disks, take their time: the loop does not wait
// for them.
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

// serve answers scrapes until ctx ends.
func (a *agent) serve(ctx context.Context) error {
	routes := exposition.Routes{
		Metrics: a.page, Healthy: a.heartbeat.check, TokenFile: a.options.MetricsTokenFile, Log: a.log,
	}
	if a.pusher != nil {
		routes.Forward = a.pusher.Push
	}
	return exposition.Serve(ctx, exposition.ServeOptions{Listen: a.options.Listen, WebConfig: a.options.WebConfig},
		routes.Handler(), a.log)
}
