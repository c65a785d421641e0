package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/kube"
)

type stressFlags struct {
	cpu, memory string
	duration    time.Duration
	utilisation float64
}

func newStress(t cmdutil.Terminal) *cobra.Command {
	var f stressFlags
	cmd := &cobra.Command{
		Use:   "stress",
		Short: "Generate CPU and memory load on a node for a limited time",
		Long: `Use the given amount of CPU time and memory until the duration has elapsed or the command is interrupted.
The chart's Jobs use this command to generate load on nodes. It prints its usage every ten seconds.`,
		Example: `  kubenergy stress --cpu 1.5 --utilisation 0.6 --memory 200Mi --duration 10m`,
		Args:    cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.load()
			if err != nil {
				return cmdutil.NewUsageError(err)
			}
			return s.run(cmd.Context(), t.Out)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.cpu, "cpu", "1", "number of CPUs, e.g. 1.5 or 1500m")
	flags.StringVar(&f.memory, "memory", "0", "memory to allocate, e.g. 200Mi")
	flags.DurationVar(&f.duration, "duration", 10*time.Minute, "duration of the load")
	flags.Float64Var(&f.utilisation, "utilisation", 1, "fraction of the CPUs to use, more than 0 and at most 1")
	return cmd
}

const (
	maxCPUs      = 4096
	stressPeriod = 100 * time.Millisecond
	stressLine   = 10 * time.Second
)

func (f *stressFlags) load() (*stress, error) {
	cpu, err := kube.ParseQuantity(f.cpu)
	if err != nil || cpu.Sign() <= 0 || cpu.AsApproximateFloat64() > maxCPUs {
		return nil, fmt.Errorf("--cpu is %q: want more than 0, e.g. 1.5 or 1500m", f.cpu)
	}
	memory, err := kube.ParseQuantity(f.memory)
	if err != nil || memory.Sign() < 0 || memory.Value() > math.MaxInt/2 {
		return nil, fmt.Errorf("--memory is %q: want a quantity, e.g. 200Mi", f.memory)
	}
	switch {
	case f.duration <= 0:
		return nil, fmt.Errorf("--duration is %v: want more than 0", f.duration)
	case !(f.utilisation > 0 && f.utilisation <= 1):
		return nil, fmt.Errorf("--utilisation is %v: want more than 0 and at most 1", f.utilisation)
	}
	return &stress{
		cores: cpu.AsApproximateFloat64() * f.utilisation, workers: int(math.Ceil(cpu.AsApproximateFloat64())),
		memory: int(memory.Value()), duration: f.duration,
	}, nil
}

// stress is a load. The workers are busy for a fraction of every period. The fraction is derived from the CPU time
// that the process has used so far, so that the mean is correct on a busy machine as long as the machine provides
// enough CPU time.
type stress struct {
	cores    float64 // mean number of cores to use
	workers  int
	memory   int
	duration time.Duration

	share atomic.Uint64 // bits of a float64: fraction of the period in which each worker is busy
}

func (s *stress) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	if s.workers >= runtime.GOMAXPROCS(0) {
		// One additional thread, so that the regulator and the workers do not wait for each other.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.workers + 1))
	}
	ballast := make([]byte, s.memory)
	for i := 0; i < len(ballast); i += os.Getpagesize() {
		ballast[i] = 1 // untouched pages are not allocated
	}
	defer runtime.KeepAlive(ballast)
	s.share.Store(math.Float64bits(min(1, s.cores/float64(s.workers))))
	var working sync.WaitGroup
	defer working.Wait()
	for range s.workers {
		working.Go(func() { s.work(ctx) })
	}
	err := s.regulate(ctx, out)
	cancel()
	return err
}

// regulate adjusts the share of the workers and periodically prints the usage.
func (s *stress) regulate(ctx context.Context, out io.Writer) error {
	began, used := time.Now(), benchmark.CPUTime()
	tick := time.NewTicker(stressPeriod)
	defer tick.Stop()
	lineAt, lineUsed := began, used
	pace := pace{cores: s.cores}
	last, lastUsed := began, used
	for {
		select {
		case <-ctx.Done():
			total := time.Since(began)
			_, err := fmt.Fprintf(out, "Finished after %s: used %.2f of %.2f CPUs on average\n",
				total.Round(time.Second/10), (benchmark.CPUTime()-used).Seconds()/total.Seconds(), s.cores)
			return err
		case now := <-tick.C:
			spent := benchmark.CPUTime()
			cores := pace.next(now.Sub(last), spent-lastUsed)
			last, lastUsed = now, spent
			s.share.Store(math.Float64bits(min(1, max(0, cores/float64(s.workers)))))
			if now.Sub(lineAt) < stressLine {
				continue
			}
			_, err := fmt.Fprintf(out, "%s: using %.2f of %.2f CPUs and %.0f MiB of memory, %s remaining\n",
				now.UTC().Format(time.TimeOnly), (spent-lineUsed).Seconds()/now.Sub(lineAt).Seconds(), s.cores,
				float64(s.memory)/(1<<20), (s.duration - now.Sub(began)).Round(time.Second))
			if err != nil {
				return err
			}
			lineAt, lineUsed = now, spent
		}
	}
}

// pace computes the number of cores to use in the next period, so that the mean matches the target.
type pace struct {
	cores float64
	debt  float64 // CPU time still to be used, in seconds
}

// next returns the number of cores for the next period, given the usage of the last one.
func (p *pace) next(period, used time.Duration) (cores float64) {
	p.debt += p.cores*period.Seconds() - used.Seconds()
	// Limit the backlog that accumulates while the machine is overloaded.
	p.debt = min(max(p.debt, -p.cores), p.cores)
	return p.cores + p.debt/0.5 // catch up within half a second
}

// work keeps one CPU busy for its share of every period.
func (s *stress) work(ctx context.Context) {
	x := 1.0
	for ctx.Err() == nil {
		began := time.Now()
		busy := time.Duration(math.Float64frombits(s.share.Load()) * float64(stressPeriod))
		for time.Since(began) < busy {
			for range 2000 {
				x = math.Sqrt(x + 2)
			}
		}
		if rest := stressPeriod - time.Since(began); rest > 0 {
			kube.Pause(ctx, rest)
		}
	}
	runtime.KeepAlive(x)
}
