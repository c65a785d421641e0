package exposition

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit"
)

// busy returns an exporter of a node with the given number of consumers, two containers in each pod plus the pod
// itself, all with names.
func busy(consumers int) (*Exporter, *energy.Attribution) {
	e := New(Options{Node: "worker-12.example.internal", MaxConsumers: consumers + 1})
	a := &energy.Attribution{End: time.Second, Quality: energy.Measured, Idle: 1_000_003}
	names := map[string]batch.Names{}
	for i := range consumers {
		uid := fmt.Sprintf("0e0a6a2e-5c7c-4a53-9d5a-%012d", i/3)
		container := ""
		if i%3 > 0 {
			container = fmt.Sprintf("%064x", i)
		}
		names[uid] = batch.Names{
			Namespace: "team-a", Pod: fmt.Sprint("web-7d9c8f6b5d-", i/3),
			Containers: map[string]string{container: "server"},
		}
		a.Shares = append(a.Shares, energy.Share{
			ID: energy.ContainerID(uid, container), Dynamic: 100_001, Idle: 20_002, CPU: 12_345_678,
		})
	}
	a.Shares = append(a.Shares, energy.Share{ID: energy.System, Dynamic: 7_777_777, CPU: time.Second})
	slices.SortFunc(a.Shares, func(x, y energy.Share) int { return strings.Compare(x.ID, y.ID) })
	a.Measured = a.Idle
	for i := range a.Shares {
		a.Measured += a.Shares[i].Dynamic + a.Shares[i].Idle
	}
	e.Add(a, meterName)
	e.SetNames(names)
	return e, a
}

// TestTicksAllocateNothing verifies that a tick allocates no memory.
func TestTicksAllocateNothing(t *testing.T) {
	e, a := busy(300)
	status := Status{
		Source: "psys (rapl)", Meters: []MeterStatus{{Name: "rapl"}},
		Delivery: &DeliveryStatus{}, Guests: &guests.Stats{},
	}
	e.SetStatus(&status)
	if n := testing.AllocsPerRun(200, func() {
		a.End += time.Second
		e.Add(a, meterName)
		e.SetStatus(&status)
	}); n > 0 {
		t.Errorf("%v allocations per tick", n)
	}
}

// TestScrapeIsQuick verifies the goal of 2 ms of CPU time for 1,000 consumers. It uses the fastest of many scrapes,
// because the machine may be shared, and a higher limit for slow machines unless KUBENERGY_LONG is set.
//
//test:norace
func TestScrapeIsQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	e, a := busy(1000)
	quickest, most := time.Hour, 10*time.Millisecond
	if os.Getenv("KUBENERGY_LONG") != "" {
		most = 2 * time.Millisecond
	}
	for range 40 {
		a.End += time.Second
		e.Add(a, meterName)
		quickest = min(quickest, kit.CPUTime(func() {
			e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		}))
	}
	t.Logf("a scrape of 1,000 consumers: %v, %d bytes", quickest, len(body(e, false)))
	if quickest > most {
		t.Errorf("a scrape takes %v", quickest)
	}
}

// TestConcurrentScrapes meters and scrapes concurrently, and verifies that each page adds up and includes
// everything that was added before the scrape.
func TestConcurrentScrapes(t *testing.T) {
	e, a := busy(60)
	each := int64(a.Measured)
	const ticks, scrapers, scrapes = 300, 4, 25
	var group sync.WaitGroup
	group.Go(func() {
		for i := range ticks {
			b := *a
			b.End += time.Duration(i) * time.Second
			b.Shares = slices.Clone(a.Shares)
			if i%7 == 0 {
				b.Shares[i%60].Ended = true
			}
			e.SetStatus(&Status{Source: "psys (rapl)", Tick: time.Millisecond})
			e.Add(&b, meterName)
		}
	})
	group.Go(func() {
		for i := range ticks {
			uid, _, _ := energy.PodOf(a.Shares[i%60].ID)
			e.SetNames(map[string]batch.Names{uid: {Namespace: "ns", Pod: fmt.Sprint("renamed-", i)}})
		}
	})
	for s := range scrapers {
		group.Go(func() {
			last := int64(0)
			for range scrapes {
				page := parse(t, strings.TrimSuffix(body(e, s%2 == 1), "# EOF\n"))
				if s%2 == 1 { // this parser treats OpenMetrics counters as untyped
					continue
				}
				wantConserved(t, page)
				now := page.sum("kubenergy_node_energy_joules_total")
				if now < last || now%each != 0 {
					t.Errorf("got %d µJ after %d µJ, with %d per interval", now, last, each)
				}
				last = now
			}
		})
	}
	group.Wait()
	if got := parse(t, body(e, false)).sum("kubenergy_node_energy_joules_total"); got != each*(ticks+1) {
		t.Errorf("final energy = %d µJ, want %d", got, each*(ticks+1))
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{250, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e, a := busy(n)
			b.ReportAllocs()
			for b.Loop() {
				a.End += time.Second
				e.Add(a, meterName)
			}
		})
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{250, 1000, 2000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e, _ := busy(n)
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(len(e.page(false))))
			}
		})
	}
}
