package cli

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/test/kit"
)

// The mean matches the target even if workers overshoot, undershoot or are temporarily starved.
func TestPace(t *testing.T) {
	for name, gives := range map[string]func(round int, asked float64) float64{
		"just so":     func(_ int, asked float64) float64 { return asked },
		"too much":    func(_ int, asked float64) float64 { return 1.3 * asked },
		"too little":  func(_ int, asked float64) float64 { return 0.7 * asked },
		"an overhead": func(_ int, asked float64) float64 { return asked + 0.05 },
		"late bursts": func(round int, asked float64) float64 { return asked * float64(round%2) * 2 },
		"starved":     func(round int, asked float64) float64 { return min(asked, float64(round/20)) },
	} {
		for _, cores := range []float64{0.1, 0.3, 2} {
			p := pace{cores: cores}
			asked, used, rounds := cores, 0.0, 300
			for round := range rounds {
				got := gives(round, min(4, max(0, asked))) * stressPeriod.Seconds()
				asked = p.next(stressPeriod, time.Duration(got*float64(time.Second)))
				if round >= 100 {
					used += got
				}
			}
			if mean := used / (float64(rounds-100) * stressPeriod.Seconds()); mean < 0.97*cores || mean > 1.03*cores {
				t.Errorf("%s: got %.3f CPUs on average, want %.2f", name, mean, cores)
			}
		}
	}
}

// The tolerance is large and there are several attempts, because other processes use the machine as well, and the
// usage of this process includes the race detector and previous tests. TestPace tests the regulator itself.
func TestStressUsesWhatItIsTold(t *testing.T) {
	for _, cores := range []float64{0.1, 0.3} {
		var got float64
		for range 4 {
			s := &stress{cores: cores, workers: 1, memory: 8 << 20, duration: 700 * time.Millisecond}
			var out bytes.Buffer
			began, used := time.Now(), benchmark.CPUTime()
			if err := s.run(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if took < s.duration || !strings.HasPrefix(out.String(), "Finished after ") {
				t.Fatalf("took %v, want %v; output %q", took, s.duration, out.String())
			}
			if got = (benchmark.CPUTime() - used).Seconds() / took.Seconds(); got > cores/2 && got < 2*cores {
				break
			}
		}
		switch {
		case got >= 2*cores:
			t.Errorf("got %.3f CPUs, want %.2f", got, cores)
		case got <= cores/2 && kit.LoopShare(200*time.Millisecond) < 2*cores:
			t.Skipf("got only %.3f CPUs of %.2f: the machine is overloaded", got, cores)
		case got <= cores/2:
			t.Errorf("got %.3f CPUs, want %.2f", got, cores)
		}
	}
}

func TestStressStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	var out bytes.Buffer
	before := runtime.GOMAXPROCS(0)
	s := &stress{cores: 0.1, workers: before + 3, duration: time.Hour}
	if err := s.run(ctx, &out); err != nil || time.Since(began) > time.Minute {
		t.Errorf("unexpected error %v after %v", err, time.Since(began))
	}
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS is %d after the run, want %d", n, before)
	}
}

func TestStressFlags(t *testing.T) {
	s, err := (&stressFlags{cpu: "1500m", memory: "200Mi", duration: time.Minute, utilisation: 0.6}).load()
	if err != nil {
		t.Fatal(err)
	}
	if s.cores < 0.899 || s.cores > 0.901 || s.workers != 2 || s.memory != 200<<20 {
		t.Errorf("unexpected load of %v cores by %d workers and %d bytes", s.cores, s.workers, s.memory)
	}
}
